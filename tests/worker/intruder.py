"""What no client of ours would put on the broker."""

from __future__ import annotations

from typing import Any

from skillstream_schemas import keys as arq_keys
from skillstream_schemas.job import pack
from skillstream_schemas.settings import Settings
from tests.support.verbs import AGENT, script

from .view import View

GOOD = script(["say", "good"])
SUBMISSION = {
    "type": "status", "state": "submitted", "v": "1", "at": "1", "agent": AGENT, "skill": "stream", "message": GOOD,
}  # fmt: skip


class Intruder:
    """Responsible for putting things on the broker that no client of ours would."""

    def __init__(self, view: View, settings: Settings) -> None:
        self._view, self._settings = view, settings

    def queue(self, task_id: str, payload: bytes | None) -> None:
        """Queues a job with these bytes, or without any."""
        member = arq_keys.job_id(AGENT, task_id)
        if payload is not None:
            self._view.redis.set(arq_keys.job(member), payload, px=600_000)
        self.enlist(member)

    def enlist(self, member: str | bytes) -> None:
        """Puts a member on the queue, due now."""
        self._view.redis.zadd(arq_keys.queue(AGENT), {member: self._view.now_ms()})

    def stream(self, task_id: str, fields: dict[str, Any], entry_id: str = "0-1") -> None:
        """Adds an entry to a task's stream."""
        key = self._settings.keys.events(task_id)
        self._view.redis.xadd(key, fields, id=entry_id)
        self._view.redis.expire(key, 600)


def stock_job(*args: Any, function: str = "run_skill", **changes: Any) -> bytes:
    """A job as a stock arq client packs it."""
    return pack({"t": None, "f": function, "a": list(args), "k": {}, "et": 1_700_000_000_000} | changes)
