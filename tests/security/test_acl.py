"""Each role has the rights that it needs for a whole life of tasks, on servers that enforce deploy/acl."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from skillstream import Client
from skillstream.task import Task
from skillstream_router.app import Router, RouterPace
from skillstream_router.connect.hub import HubConnector
from skillstream_router.inbox import ReadingPace
from skillstream_router.reaper import ReapingPace
from skillstream_router.reconciler import ReconcilingPace
from skillstream_schemas import keys as arq_keys
from skillstream_schemas.errors import NotReplicated
from skillstream_schemas.keys import Keyspace
from skillstream_schemas.settings import Settings
from skillstream_schemas.state import TaskState
from skillstream_worker import Agent, Worker
from skillstream_worker.broker import Lease, WorkerBroker
from tests.connect.stub_hub import StubHub, text_of
from tests.router.eventually import eventually
from tests.router.ledger_file import LedgerFile
from tests.support.verbs import AGENT, BOUND_S, Gates, script, verb_agent

from .conftest import SettingsOf
from .roles import ROLES, UsedCommands, granted

PACE = RouterPace(
    ReadingPace(block_s=0.2, take_over_s=0.2), ReapingPace(period_s=0.1, pause_s=0), ReconcilingPace(period_s=0.1, pause_s=0)
)
FREE = {"AUTH", "HELLO", "SELECT", "QUIT"}
"""Commands of a connection's beginning that need no right."""


class Parts:
    """Responsible for one process of each role, each as its own user."""

    def __init__(self, settings_of: SettingsOf, admin: Any, folder: Path) -> None:
        self.gates = Gates()
        self.agent: Agent = verb_agent(self.gates)
        self.ledger = LedgerFile(folder / "router.db")
        self.keys: Keyspace = settings_of("worker").keys
        self.worker_settings: Settings = settings_of("worker", poll_s=0.1)
        self.submitter = Client(settings=settings_of("submitter"))
        self.follower = Client(settings=settings_of("follower"))
        gateway_url = settings_of("submitter").redis_url
        router_settings = settings_of("router", database_url=self.ledger.url, http="127.0.0.1:0", http_redis_url=gateway_url)
        self.router = Router(router_settings, pace=PACE)
        self.connector_settings: Settings = settings_of("connector")
        self.note_users: Callable[[], None] = lambda: None
        self.admin = admin
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Parts:
        await self._stack.enter_async_context(self.router)
        self.worker = await self.start_worker("w1")
        await self._stack.enter_async_context(self.submitter)
        await self._stack.enter_async_context(self.follower)
        await self.router.until_reading()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    async def start_worker(self, name: str) -> Worker:
        worker = Worker([self.agent], self.worker_settings, name=name)
        return await self._stack.enter_async_context(worker)

    async def submit(self, *verbs: list[Any], **options: Any) -> Task:
        return await self.submitter.submit(AGENT, "stream", script(*verbs), **options)

    async def recorded(self, task: Task, state: TaskState) -> None:
        await eventually(lambda: self.ledger.task(task.id).get("state") == state, f"{task} {state} in the database")

    def denials(self) -> list[Any]:
        return [(entry["username"], entry["reason"], entry["object"]) for entry in self.admin.acl_log()]


async def run_and_follow(parts: Parts) -> None:
    """Submit, run, follow as a user who may only read, route, and talk on in the same context."""
    conversation = parts.submitter.conversation(AGENT, payer="acme")
    first = await conversation.submit("stream", script(*[["progress", "thinking", 0.5]] * 9, ["say", "one "], ["say", "two"]))
    followed = parts.follower.task(first.id)
    assert "".join([text async for text in followed.text()]) == "one two"
    assert [event.type async for event in followed.events()][-1] == "final"
    assert (await followed.result(BOUND_S)).text == "one two"
    await parts.recorded(first, TaskState.COMPLETED)
    context = parts.keys.context_messages(conversation.context_id)
    await eventually(lambda: parts.admin.llen(context) == 2, "the context's list")
    second = await conversation.submit("stream", script(["say", "again"]))
    await second.result(BOUND_S)
    assert len(parts.gates.contexts[-1].conversation_history) == 2
    with pytest.raises(NotReplicated):
        await parts.submit(["say", "durable"], durable=True)


async def cancel(parts: Parts) -> None:
    """Cancel a queued task, which takes close and settle, and a running one."""
    queued = await parts.submit(["say", "never"], delay=600)
    assert (await queued.cancel("not needed")).state is TaskState.CANCELED
    assert parts.admin.zscore(arq_keys.queue(AGENT), arq_keys.job_id(AGENT, queued.id)) is None
    running = await parts.submit(["say", "part"], ["reach", "running"], ["wait", "never"])
    await parts.gates.reached("running")
    assert (await running.cancel("enough", timeout=BOUND_S)).text == "part"
    await parts.recorded(running, TaskState.CANCELED)
    assert await parts.submitter.queue_depths(AGENT) == (0, 0)


async def over_http(parts: Parts) -> None:
    """The gateway of the router, with the submitter's user: submit, follow, cancel, list, be well."""
    assert parts.router.http is not None
    async with httpx.AsyncClient(base_url=parts.router.http.url, timeout=BOUND_S, trust_env=False) as http:
        message = script(["say", "part"], ["reach", "asked"], ["wait", "never"])
        told = (await http.post("/v1/tasks", json={"agent": AGENT, "skill": "stream", "message": message})).json()
        await parts.gates.reached("asked")
        assert (await http.post(f"/v1/tasks/{told['id']}/cancel")).json()["state"] == "canceled"
        assert '"type":"final"' in (await http.get(f"/v1/tasks/{told['id']}/events")).text
        assert len((await http.get("/v1/agents")).json()["agents"]) == 1
        assert (await http.get("/healthz")).status_code == 200


async def retry_and_delegate(parts: Parts) -> None:
    """A second attempt behind the text of the first, and a child task."""
    task = await parts.submit(["attempt", 1, ["retry", 0.01]], ["delegate", AGENT, "plain", script(["say", "child"])])
    assert (await task.result(BOUND_S)).state is TaskState.COMPLETED
    assert parts.gates.children[-1].text == "child"


async def drain(parts: Parts) -> None:
    """A worker stops in the middle of a task; another one ends it."""
    task = await parts.submit(["attempt", 1, ["reach", "held"], ["wait", "never"]], ["say", "done"])
    await parts.gates.reached("held")
    await parts.worker.stop(grace_s=0)
    await parts.start_worker("w2")
    assert (await task.result(BOUND_S)).text == "done"
    await parts.recorded(task, TaskState.COMPLETED)


async def repair(parts: Parts) -> None:
    """What the router puts right: a lost job, a lost stream, a job that was left behind its final."""
    held = await parts.submit(["say", "late"], delay=600)
    await parts.recorded(held, TaskState.SUBMITTED)
    member = arq_keys.job_id(AGENT, held.id)
    parts.admin.delete(parts.keys.events(held.id))
    await parts.recorded(held, TaskState.FAILED)
    await eventually(lambda: parts.admin.zscore(arq_keys.queue(AGENT), member) is None, "the job of the lost stream is gone")
    running = await parts.submit(["reach", "robbed"], ["wait", "found"], ["say", "safe"])
    await parts.gates.reached("robbed")
    robbed = arq_keys.job_id(AGENT, running.id)
    parts.admin.zrem(arq_keys.queue(AGENT), robbed)
    await eventually(lambda: parts.admin.zscore(arq_keys.queue(AGENT), robbed) is not None, "the lost job is queued again")
    parts.gates.open("found")
    assert (await running.result(BOUND_S)).text == "safe"
    ended = await parts.submit(["say", "x"])
    await ended.result(BOUND_S)
    await parts.recorded(ended, TaskState.COMPLETED)
    left = arq_keys.job_id(AGENT, ended.id)
    # in the future, so that no worker takes it first
    parts.admin.zadd(arq_keys.queue(AGENT), {left: 9e12})
    parts.admin.set(arq_keys.job(left), b"x", ex=600)
    await eventually(lambda: parts.admin.zscore(arq_keys.queue(AGENT), left) is None, "the job that was left is gone")


async def connect(parts: Parts) -> None:
    """A connector takes two turns of a conversation at a hub, and tells them there."""
    async with StubHub() as hub, HubConnector(hub.address, [f"{AGENT}/stream"], parts.connector_settings) as connector:
        await connector.until_registered()
        await hub.execute("first", script(["say", "one"]), session="s")
        assert text_of(await hub.completed("first")) == "one"
        await hub.execute("second", script(["say", "two"], ["reach", "told"], ["wait", "back"]), session="s")
        await hub.until(lambda: hub.received("task.status", "second"), "the first words")
        # its stream is read again, and nothing new is there: the connector looks at its ends
        for number in range(1, 4):
            parts.admin.expire(parts.keys.events(parts.gates.contexts[-1].task_id), 600 + number)
            await hub.say({"jsonrpc": "2.0", "method": "heartbeat", "params": {}})
            await hub.until(lambda number=number: hub.heartbeats == number, "the connector is alive")  # type: ignore[misc]
        parts.gates.open("back")
        assert text_of(await hub.completed("second")) == "two"
        await eventually(lambda: not list(parts.admin.scan_iter("skillstream:connect:*:open")), "nothing is owed")
        parts.note_users()


async def hourly(parts: Parts) -> None:
    """What a worker does each hour."""
    broker = WorkerBroker(parts.worker_settings, "w3")
    await broker.open()
    try:
        await broker.extend([Lease(AGENT, "t", "w3", 1)])
    finally:
        await broker.close()


async def test_a_whole_life_with_the_rights_of_each_role_and_not_one_denial(
    settings_of: SettingsOf, admin: Any, tmp_path: Path
) -> None:
    with UsedCommands(admin) as used:
        async with Parts(settings_of, admin, tmp_path) as parts:
            parts.note_users = used.note_users
            for step in (run_and_follow, cancel, over_http, retry_and_delegate, drain, connect, repair, hourly):
                await step(parts)
                used.note_users()
                assert parts.denials() == [], step.__name__
        assert parts.denials() == []
        by_role = used.by_role()
    admin.flushall()
    surplus = {role: granted(role) - by_role[role] for role in ROLES}
    # sent with each connection, and unknown to Redis 7.0
    assert {role: names for role, names in surplus.items() if names - {"CLIENT|SETINFO"}} == {}
    missing = {role: by_role[role] - granted(role) - FREE - {"CLIENT|SETINFO"} for role in ROLES}
    assert {role: names for role, names in missing.items() if names} == {}
