"""What was asked of the product for one task, and what its clients heard: the other half of what the checker compares."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Order:
    """One task as it was asked for, what may become of it, and what clients were told.

    `finals` are the ends it may have, as `state` or `failed:error`; `text` is what a task says that runs to its end, and
    one that ends early has said a beginning of. `delay_ms` is how long it must not start. `cancel_reasons` were asked
    for; `answered` are ids of finals that cancellations were answered with; `followed` the ids that a follower was
    given, in order, and `followed_text` the text that it put together from them.
    """

    task_id: str
    skill: str
    message: str
    finals: frozenset[str]
    text: str | None = None
    payer: str | None = None
    context_id: str | None = None
    deadline_ms: int | None = None
    delay_ms: int = 0
    price_micros: int = 0
    cancel_reasons: list[str] = field(default_factory=list)
    answered: list[str] = field(default_factory=list)
    followed: list[str] | None = None
    followed_text: str = ""
