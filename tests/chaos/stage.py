"""A small place for one planted situation: a broker, processes started one by one, and the checker at the end."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from skillstream import Client
from skillstream_schemas.settings import Settings
from skillstream_worker.broker import Lease, WorkerBroker
from tests.acceptance.checker import check, read_entries
from tests.acceptance.database_rules import check_rows
from tests.acceptance.order import Order
from tests.acceptance.report import Entry, Report
from tests.support.processes import Process
from tests.support.redis_server import RedisServer, valkey_binary

from .battlefield import ENVIRONMENT, LEASE_S
from .storm_agent import agent

BOUND_S = 10.0
_LOOK_S = 0.02


class Stage:
    """Responsible for what a situation needs; its processes end with it."""

    def __init__(self, folder: Path) -> None:
        self.database = folder / "router.db"
        self.server = RedisServer(valkey_binary())
        self.settings = Settings.from_env(ENVIRONMENT, redis_url=self.server.url, database_url=f"sqlite:///{self.database}")
        self.orders: list[Order] = []
        self.outside: Any = None
        self._stack = AsyncExitStack()
        self._client = Client(settings=self.settings)
        self._has_router = False

    async def __aenter__(self) -> Self:
        self._stack.enter_context(self.server)
        self.outside = self._stack.enter_context(self.server.client())
        await self._stack.enter_async_context(self._client)
        broker = await self.worker_by_hand("announcer")
        await broker.announce(agent.card, 60_000)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._stack.aclose()

    async def worker(self) -> Process:
        """A worker process that is ready."""
        arguments = ("worker", "tests.chaos.storm_agent:agent", "--redis", self.server.url, "--lease", str(LEASE_S))
        return await self._ready(Process(*arguments, env=ENVIRONMENT))

    async def router(self) -> Process:
        """A router process that is ready."""
        self._has_router = True
        arguments = (self.server.url, f"sqlite:///{self.database}")
        return await self._ready(Process(*arguments, env=ENVIRONMENT, module="tests.chaos.quick_router"))

    async def worker_by_hand(self, name: str) -> WorkerBroker:
        """A worker's seam to the broker, whose steps the situation takes one by one."""
        broker = await WorkerBroker(self.settings, name).open()
        self._stack.push_async_callback(broker.close)
        return broker

    async def submit(self, skill: str, text: str, **wanted: Any) -> Order:
        """Submits a task that is to be completed with this text."""
        order = Order(f"task-{len(self.orders)}", skill, json.dumps(wanted), frozenset({"completed"}), text, payer="payer")
        self.orders.append(order)
        await self._client.submit(agent.name, skill, order.message, task_id=order.task_id, payer=order.payer)
        return order

    async def open_by_hand(self, worker: WorkerBroker, order: Order) -> Lease:
        """Claims and opens a task."""
        (job,) = (await worker.claim(agent.name, [order.task_id], 0)).won
        lease = Lease(agent.name, order.task_id, worker.worker, job.claim)
        await worker.open_attempt(lease, None)
        return lease

    def entries(self, order: Order) -> list[Entry]:
        """A task's stream."""
        return read_entries(self.outside, self.settings.keys.events(order.task_id))

    def is_open(self, order: Order, attempt: int) -> bool:
        """True once an attempt has been opened."""
        return any(event_id == (attempt, 1) for event_id, _ in self.entries(order))

    def is_final(self, order: Order) -> bool:
        """True once a final is on the stream."""
        return any(fields["type"] == "final" for _, fields in self.entries(order))

    def is_leased(self, order: Order) -> bool:
        """True while somebody holds the task's job."""
        return bool(self.outside.exists(f"arq:in-progress:{{{agent.name}}}:{order.task_id}"))

    def rings(self) -> int:
        """Rings that no router has acknowledged."""
        return sum(int(self.outside.xlen(key)) for key in self.outside.scan_iter("skillstream:inbox:*"))

    def jobs(self) -> int:
        """Jobs that no worker has settled."""
        return sum(self.outside.zcard(key) for key in self.outside.scan_iter("arq:queue:*"))

    def undelivered(self) -> int:
        """Rings that no router has read."""
        inboxes = list(self.outside.scan_iter("skillstream:inbox:*"))
        pending: int = sum(group["pending"] for inbox in inboxes for group in self.outside.xinfo_groups(inbox))
        return self.rings() - pending

    @contextmanager
    def locked_database(self) -> Iterator[None]:
        """Holds the database's write lock."""
        lock = sqlite3.connect(self.database, isolation_level=None)
        lock.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            lock.rollback()
            lock.close()

    async def until(self, condition: Callable[[], bool], bound_s: float = BOUND_S) -> bool:
        """Waits for what is to come; False where it does not come within the bound: the checker says what that means."""
        give_up_s = time.monotonic() + bound_s
        while not condition():
            if time.monotonic() > give_up_s:
                return False
            await asyncio.sleep(_LOOK_S)
        return True

    async def report(self) -> Report:
        """What the checker finds once all is quiet, or the bound has passed."""
        if not self._has_router:
            await self.router()
        await self.until(lambda: self.jobs() == 0 and self.rings() == 0)  # in this order: every final has rung by then
        return self._check()

    def check_rows(self) -> Report:
        """What the checker finds in the database now."""
        report = Report()
        with sqlite3.connect(self.database) as store:
            store.row_factory = sqlite3.Row
            for order in self.orders:
                check_rows(order.task_id, self.entries(order), store, report)
        return report

    def _check(self) -> Report:
        return check(self.server.url, str(self.database), [], orders=self.orders, lease_ms=int(LEASE_S * 1000))

    async def _ready(self, process: Process) -> Process:
        self._stack.callback(process.kill)
        await asyncio.to_thread(process.wait_for, "is ready", 30.0)
        return process
