"""Who asks, and what that one may see."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request.

    `payer` is the account that the API key is bound to; None on an open gateway, where everybody may name any payer
    and sees all. `key_id` is the id of the key. A read token lets its bearer see `task_id` alone, as it was submitted at
    `submitted_at` (unix ms), and change nothing.
    """

    payer: str | None
    key_id: str = ""
    task_id: str | None = None
    submitted_at: int | None = None

    @property
    def is_open(self) -> bool:
        """True on a gateway without keys."""
        return self.payer is None and self.task_id is None

    @property
    def may_write(self) -> bool:
        """False for the bearer of a read token."""
        return self.task_id is None

    def may_see(self, task_id: str, payer: str | None, submitted_at: int) -> bool:
        """True if this caller may see a task that `payer` pays for and that was submitted at `submitted_at` (unix ms)."""
        if self.task_id is not None:
            return (task_id, submitted_at) == (self.task_id, self.submitted_at)
        return self.is_open or payer == self.payer
