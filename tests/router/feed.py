"""Writes task streams and rings as workers and clients do, with redis-py alone."""

from __future__ import annotations

import json
import time
from typing import Any

import redis

from skillstream_schemas import keys as arq_keys
from skillstream_schemas.keys import Keyspace

NOW_MS = int(time.time() * 1000)
"""When this run of the tests began, which may be half an hour ago."""


class Feed:
    """Responsible for what stands on the broker before a router looks at it. Streams get a TTL, as the contract says."""

    def __init__(self, outside: redis.Redis, keys: Keyspace) -> None:
        self._outside: Any = outside  # redis-py's types leave open whether it is awaited
        self.keys = keys

    def submitted(self, task_id: str, *, at: int = NOW_MS, **request: Any) -> None:
        """A task in attempt 0."""
        fields = {"agent": "poet", "skill": "rhyme", "message": f"to {task_id}", "max_attempts": 3, "price_micros": 0}
        fields |= {"on_retry": "restart"} | request
        self.entry(task_id, "0-1", {"type": "status", "state": "submitted", "v": 1, "at": at, **fields})
        self.ring(task_id, "submitted")

    def opened(self, task_id: str, attempt: int = 1, **fields: Any) -> None:
        """An attempt of a worker."""
        opening = {"type": "status", "state": "working", "worker": "w1", "claim": attempt, "strikes": attempt, "at": NOW_MS}
        self.entry(task_id, f"{attempt}-1", opening | fields)
        self.ring(task_id, "opened")

    def final(self, task_id: str, entry_id: str = "1-2", *, state: str = "completed", text: str = "done", **fields: Any) -> None:
        """The end of a task."""
        final = {"type": "final", "state": state, "text": text, "metadata": json.dumps({"agentId": "poet", "agentName": "poet"})}
        self.entry(task_id, entry_id, final | {"chunks": 0, "at": NOW_MS + 5} | fields)
        self.ring(task_id, "final")

    def ended(self, task_id: str, *, state: str = "completed", text: str = "done", **request: Any) -> None:
        """A task with all three entries and rings."""
        self.submitted(task_id, **request)
        self.opened(task_id)
        self.final(task_id, state=state, text=text)

    def entry(self, task_id: str, entry_id: str, fields: dict[Any, Any]) -> None:
        """Any entry."""
        key = self.keys.events(task_id)
        self._outside.xadd(key, fields, id=entry_id)
        self._outside.expire(key, 7 * 86_400)

    def ring(self, task_id: str, kind: str, **fields: Any) -> None:
        """A ring for a task."""
        self._outside.xadd(self.keys.inbox_of(task_id), {"task": task_id, "kind": kind, **fields})

    def job(self, task_id: str, payload: bytes = b"job", *, agent: str = "poet", owned: bool = False) -> None:
        """A job on the queue, due now; `owned` by a worker, if asked for."""
        member = arq_keys.job_id(agent, task_id)
        self._outside.set(arq_keys.job(member), payload, ex=86_400)
        self._outside.zadd(arq_keys.queue(agent), {member: NOW_MS})
        if owned:
            self._outside.set(arq_keys.in_progress(member), "w1:1", ex=60)

    def no_jobs(self, *task_ids: str, agent: str = "poet") -> None:
        """Takes jobs away, as a worker's settlement does."""
        for task_id in task_ids:
            member = arq_keys.job_id(agent, task_id)
            self._outside.delete(arq_keys.job(member), arq_keys.in_progress(member))
            self._outside.zrem(arq_keys.queue(agent), member)

    def is_queued(self, task_id: str, *, agent: str = "poet") -> bool:
        """True while the task has a job on the queue."""
        return self._outside.zscore(arq_keys.queue(agent), arq_keys.job_id(agent, task_id)) is not None

    def rings_left(self) -> int:
        """Rings in all inboxes."""
        return sum(self._outside.xlen(self.keys.inbox(shard)) for shard in range(self.keys.shard_count))

    def pending(self) -> int:
        """Rings given to a router and not acknowledged."""
        inboxes = (self.keys.inbox(shard) for shard in range(self.keys.shard_count))
        return sum(self._outside.xpending(inbox, "router")["pending"] for inbox in inboxes if self._outside.exists(inbox))

    def stream(self, task_id: str) -> list[tuple[str, dict[str, str]]]:
        """All entries of a task."""
        entries: list[tuple[str, dict[str, str]]] = self._outside.xrange(self.keys.events(task_id))
        return entries


def final_of(feed: Feed, task_id: str) -> dict[str, str]:
    """The final of a task, {} where it has none."""
    entries = feed.stream(task_id)
    return entries[-1][1] if entries and entries[-1][1]["type"] == "final" else {}


def ids(feed: Feed, task_id: str) -> list[str]:
    return [entry_id for entry_id, _ in feed.stream(task_id)]
