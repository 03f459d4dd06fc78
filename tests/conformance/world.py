"""Where the state machine plays: an event loop, the product's brokers and store, and the view from outside."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from itertools import count, pairwise
from typing import Any, Self, TypeVar

import redis

from skillstream.broker import Broker
from skillstream_router.broker import RouterBroker
from skillstream_router.store import Store
from skillstream_schemas import keys as arq_keys
from skillstream_schemas.errors import BrokerRefused
from skillstream_schemas.ids import EventId
from skillstream_schemas.settings import Settings
from skillstream_worker.broker import WorkerBroker
from tests.router.ledger_file import LedgerFile
from tests.support.protocol_bench import AGENT

T = TypeVar("T")
PAYER = "acme"
PRICE_MICROS = 50_000


class World:
    """Responsible for what all examples share; each example has a task of its own. Leases end by a step, never by themselves."""

    def __init__(self, outside: redis.Redis, settings: Settings, ledger: LedgerFile) -> None:
        self.outside: Any = outside
        self.settings = settings.changed(database_url=ledger.url, lease_s=600)
        self.keys = settings.keys
        self.client = Broker(self.settings)
        self.router = RouterBroker(self.settings, "r1")
        self.workers = [WorkerBroker(self.settings, name) for name in ("w1", "w2")]
        self.store = Store(self.settings)
        self._parts: tuple[Broker | Store, ...] = (self.client, self.router, *self.workers, self.store)
        self._ledger_path = ledger.path
        self.seen_kinds: Counter[str] = Counter()
        self._runner = asyncio.Runner()
        self._numbers = count(1)

    def __enter__(self) -> Self:
        for part in self._parts:
            self.run(part.open())
        self._database = sqlite3.connect(self._ledger_path, timeout=5, isolation_level=None)
        return self

    def __exit__(self, *exc: object) -> None:
        self._database.close()
        for part in self._parts:
            self.run(part.close())
        self._runner.close()
        self.outside.delete(arq_keys.queue(AGENT))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs one step to its end."""
        return self._runner.get_loop().run_until_complete(work)

    async def sent(self, command: Callable[[], Awaitable[object]]) -> None:
        """Has a command executed whose answer meets nobody."""
        try:
            await command()
        except BrokerRefused:
            pass

    def next_task_id(self) -> str:
        """An id that no example had."""
        return f"task-{next(self._numbers)}"

    def lease_value(self, member: str) -> str | None:
        """Who holds a job."""
        value: str | None = self.outside.get(arq_keys.in_progress(member))
        return value

    def lapse(self, member: str) -> None:
        """Ends a lease; the job is due."""
        self.outside.delete(arq_keys.in_progress(member))
        self.outside.zadd(arq_keys.queue(AGENT), {member: 0}, xx=True)

    def seen(self, task_id: str, member: str) -> tuple[list[tuple[str, dict[str, str]]], float | None, list[str]]:
        """A task's stream, its job's score and the kinds of its rings, at one moment."""
        with self.outside.pipeline(transaction=True) as looks:
            looks.xrange(self.keys.events(task_id))
            looks.zscore(arq_keys.queue(AGENT), member)
            looks.xrange(self.keys.inbox_of(task_id))
            entries, score, inbox = looks.execute()
        return entries, score, [fields["kind"] for _, fields in inbox if fields["task"] == task_id]

    def booked(self, task_id: str) -> tuple[str | None, int]:
        """A task's state in the database and how many transfers it made."""
        sql = "SELECT (SELECT state FROM tasks WHERE id = ?1), (SELECT count(*) FROM transfers WHERE task_id = ?1)"
        state, transfers = self._database.execute(sql, (task_id,)).fetchone()
        return state, transfers

    def now_ms(self) -> int:
        """This machine's clock, unix ms."""
        return time.time_ns() // 1_000_000

    def forget(self, task_id: str, entries: list[tuple[str, dict[str, str]]]) -> None:
        """Takes note of what an example saw, and makes room for the next."""
        kinds = [fields.get("handed_back") or fields.get("error") or fields.get("state") or "chunk" for _, fields in entries]
        self.seen_kinds.update(kinds)
        self.seen_kinds["resume"] += sum("resume_from" in fields for _, fields in entries)
        member = arq_keys.job_id(AGENT, task_id)
        self.outside.delete(self.keys.events(task_id), self.keys.cancel(task_id), self.keys.inbox_of(task_id))
        self.outside.delete(arq_keys.job(member), arq_keys.in_progress(member), arq_keys.retry(member), self.keys.wake(AGENT))
        self.outside.zrem(arq_keys.queue(AGENT), member)


def are_dense(ids: list[EventId]) -> bool:
    """True where no entry is missing, neither within an attempt nor between two."""
    steps = [(later.attempt - earlier.attempt, later.seq - earlier.seq, later.seq) for earlier, later in pairwise(ids)]
    return all(step[:2] == (0, 1) or (step[0], step[2]) == (1, 1) for step in steps)


def text_of(entries: list[tuple[str, dict[str, str]]]) -> str:
    """The text that a reader has behind the last entry."""
    text = ""
    for _, fields in entries:
        if "claim" in fields:
            text = text[: int(fields.get("resume_from", 0))]
        elif fields["type"] == "chunk":
            text += fields["text"]
    return text
