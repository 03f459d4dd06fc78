"""One task's world: workers, clients and routers of the product, each over a seam of its own, and the view from outside."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import redis

from skillstream import Client
from skillstream.broker import Ending, Settlement
from skillstream.task import Task
from skillstream_router import Router
from skillstream_router.app import RouterPace
from skillstream_schemas import keys as arq_keys
from skillstream_schemas.event import FinalEvent
from skillstream_schemas.ids import START, EventId
from skillstream_schemas.settings import Settings
from skillstream_schemas.state import TaskState
from skillstream_worker import Agent, Worker
from skillstream_worker.broker import Lease, WorkerBroker
from skillstream_worker.openings import Opened
from tests.client.bounds import until
from tests.router.conftest import REAPING, MovedClock
from tests.router.ledger_file import LedgerFile
from tests.support.protocol_bench import port_of
from tests.support.verbs import AGENT, Gates, script, verb_agent
from tests.worker.view import View

from .seam import Seam

PAYER = "acme"
PRICE_MICROS = 50_000


class Stage:
    """Responsible for the parts that take part in a trace; `view`, `ledger` and `outside` show what came of it.

    `seams` has the seam of each part, by the part's name. The skills of the agent do what a task's verbs say and cost
    50,000 micros; `gates` is where they meet the test.
    """

    def __init__(self, outside: redis.Redis, settings: Settings, ledger: LedgerFile) -> None:
        self.outside: Any = outside
        self.settings = settings.changed(database_url=ledger.url)
        self.keys = settings.keys
        self.ledger = ledger
        self.view = View(outside, settings)
        self.gates = Gates()
        self.clock = MovedClock()
        self.seams: dict[str, Seam] = {}
        self._clients: dict[str, Client] = {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Stage:
        return self

    async def __aexit__(self, *exc: Any) -> None:
        for seam in self.seams.values():
            seam.let_go()
        await self._stack.aclose()

    def agent(self, **options: Any) -> Agent:
        """The agent of this stage; options are those of `Agent.skill`."""
        defaults: dict[str, Any] = {"price_usd": "0.05", "max_attempts": 5}
        return verb_agent(self.gates, **(defaults | options))

    async def seam(self, name: str) -> Seam:
        """The seam of a part, open before the part starts."""
        if name not in self.seams:
            self.seams[name] = await self._stack.enter_async_context(Seam(port_of(self.settings)))
        return self.seams[name]

    async def worker(self, name: str = "w1", agent: Agent | None = None, **changes: Any) -> Worker:
        """A running worker; `changes` are settings."""
        worker = Worker([agent or self.agent()], await self._settings(name, changes), name=name)
        await worker.start()
        self._stack.push_async_callback(worker.stop, grace_s=0)
        return worker

    async def hand(self, name: str, **changes: Any) -> WorkerBroker:
        """The broker of a worker that a test plays step by step."""
        broker = await WorkerBroker(await self._settings(name, changes), name).open()
        self._stack.push_async_callback(broker.close)
        return broker

    async def client(self, name: str = "client", **changes: Any) -> Client:
        """The open client of a name; it knows the agent's card. `changes` are settings of a new one."""
        if name in self._clients:
            return self._clients[name]
        if not self.outside.hexists(self.keys.agents, AGENT):
            self.outside.hset(self.keys.agents, AGENT, self.agent().card.model_dump_json())
        self._clients[name] = await self._stack.enter_async_context(Client(settings=await self._settings(name, changes)))
        return self._clients[name]

    async def router(self, name: str = "r1", pace: RouterPace = REAPING, **changes: Any) -> Router:
        """A running router."""
        router = Router(await self._settings(name, changes), name=name, clock=self.clock, pace=pace)
        return await self._stack.enter_async_context(router)

    async def submit(self, *verbs: list[Any], client: str = "client", **options: Any) -> Task:
        """Submits verbs to the skill `stream`; options are those of `Client.submit`."""
        opened = await self.client(client)
        return await opened.submit(AGENT, "stream", script(*verbs), payer=PAYER, **options)

    async def claimed(self, broker: WorkerBroker, task_id: str) -> Lease:
        """Claims a task step by step."""
        won = (await broker.claim(AGENT, [task_id], 0)).won
        assert [job.task_id for job in won] == [task_id], "the job was not won"
        return Lease(AGENT, task_id, broker.worker, won[0].claim)

    async def opened(self, broker: WorkerBroker, task_id: str) -> tuple[Lease, int]:
        """Claims and opens a task step by step; returns the lease and the number of the attempt."""
        lease = await self.claimed(broker, task_id)
        opening = await broker.open_attempt(lease, None)
        assert isinstance(opening, Opened), opening
        return lease, opening.attempt

    async def opened_by_hand(self, *texts: str) -> tuple[Task, int]:
        """A task in attempt 1 with these chunks, whose worker is gone; returns it and the claim of its opening."""
        task = await self.submit(["say", "done"])
        lease, _ = await self.opened(await self.hand("w0"), task.id)
        for seq, text in enumerate(texts, 2):
            self.say(task.id, f"1-{seq}", text)
        return task, lease.claim

    async def close_by_hand(self, task_id: str) -> None:
        """Ends a task from outside, whatever stands on its stream."""
        broker = await self.hand("last")
        final = FinalEvent(id=START, at=0, state=TaskState.FAILED, text="", metadata={}, error="expired", chunks=0)
        assert await broker.close_task(task_id, Ending(final, EventId.parse(self.view.ids(task_id)[-1]), None), "test")
        await broker.settle(AGENT, [Settlement(task_id)])

    def lapse(self, task_id: str) -> None:
        """Ends a lease, as its TTL would while its worker stalls; the job is due."""
        member = arq_keys.job_id(AGENT, task_id)
        self.outside.delete(arq_keys.in_progress(member))
        self.outside.zadd(arq_keys.queue(AGENT), {member: 0}, xx=True)

    def say(self, task_id: str, entry_id: str, text: str) -> None:
        """A worker's chunk, as XADD adds it."""
        self.outside.xadd(self.keys.events(task_id), {"type": "chunk", "text": text, "at": 1}, id=entry_id, nomkstream=True)

    def go_back(self, task_id: str, *entries: tuple[str, dict[str, str]]) -> None:
        """The stream as an older replica has it."""
        key = self.keys.events(task_id)
        self.outside.delete(key)
        for entry_id, fields in entries:
            self.outside.xadd(key, fields, id=entry_id)
        if entries:
            self.outside.pexpire(key, int(self.settings.stream_ttl_s * 1000))

    async def settled(self, task_id: str) -> dict[str, str]:
        """Waits until a task has its final and its job is gone; returns the final, the only one and the last entry."""
        await until(lambda: self.is_final(task_id) and not self.view.arq_keys_of(task_id) and self.view.score(task_id) is None)
        return self.view.final(task_id)

    async def charged_once(self, task_id: str) -> None:
        """Waits until the router has a completed task's end; it was paid for once."""
        await until(lambda: self.ledger.state(task_id) == "completed")
        assert self.ledger.balances()[f"payer:{PAYER}"] == -PRICE_MICROS
        assert self.ledger.rows("SELECT count(*) FROM transfers WHERE task_id = ?", task_id) == [(2,)]

    def is_final(self, task_id: str) -> bool:
        """True once a final is the last entry."""
        top = self.outside.xrevrange(self.keys.events(task_id), count=1)
        return bool(top) and top[0][1]["type"] == "final"

    def rings_left(self) -> int:
        """Rings in all inboxes."""
        return sum(self.outside.xlen(self.keys.inbox(shard)) for shard in range(self.settings.shards))

    def chunks(self, task_id: str, attempt: int) -> str:
        """The text of an attempt's chunks."""
        return "".join(self.view.texts(task_id, attempt))

    async def _settings(self, name: str, changes: dict[str, Any]) -> Settings:
        return self.settings.changed(redis_url=(await self.seam(name)).url, **changes)
