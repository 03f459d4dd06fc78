"""What the reaper sees of a task on the broker at one moment."""

from __future__ import annotations

from dataclasses import dataclass

from .projection import Ends, RawEntry


@dataclass(frozen=True, slots=True)
class Sighting:
    """A task's job and stream; the job was read first.

    In that order a job that is missing and a stream without a final say that the job was lost: a job leaves the queue
    only behind its final. `stream_ttl_ms` is None where the stream has no end or is not there; `cancel_reason` is the
    requested cancellation's; `opening` that of the last attempt, where it was left.
    """

    ends: Ends
    queued: bool
    has_job: bool
    owned: bool
    stream_ttl_ms: int | None
    cancel_reason: str | None
    opening: RawEntry | None = None

    @property
    def is_left(self) -> bool:
        """True where an attempt was opened, has no final, and nobody holds the job."""
        top = self.ends.top
        return top is not None and not top.is_final and not self.owned and self.ends.top_attempt > 0
