"""The hub's connection dropped before and after every frame, and the connector killed: every end arrives, nothing runs twice."""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
from collections.abc import AsyncGenerator

import pytest
import redis

from skillstream import Client
from skillstream_router.connect.hub import HubConnector
from skillstream_schemas.settings import Settings
from skillstream_worker import Agent, TaskContext, Worker
from skillstream_worker.chunking import Chunking
from tests.router.eventually import eventually
from tests.support.cutting_proxy import CuttingProxy
from tests.support.processes import Process
from tests.support.verbs import Gates, script

from .conftest import QUICK, StartConnector
from .stub_hub import KEY, Cut, StubHub, text_of

PIECES = [f"piece {number}. " for number in range(5)]
FRAMES = 17
"""Frames of an exchange without a drop: one to let in, two each to register, to execute, for five pieces and for the end."""


@pytest.fixture
def runs() -> list[str]:
    """Task ids of the skill's runs."""
    return []


@pytest.fixture
async def pieces_worker(settings: Settings, runs: list[str]) -> AsyncGenerator[Worker, None]:
    """A worker of an agent that says five pieces."""
    agent = Agent("counter")

    @agent.skill("run", chunking=Chunking.off())
    async def run(message: str, context: TaskContext) -> AsyncGenerator[str, None]:
        runs.append(context.task_id)
        for piece in PIECES:
            yield piece

    worker = Worker([agent], settings, name="w1")
    await worker.start()
    yield worker
    await worker.stop(grace_s=0)


def check(hub: StubHub, runs: list[str], task: str) -> None:
    """What holds whatever was dropped: one run, all pieces in order under their ids, one end, nothing behind its answer."""
    statuses = hub.received("task.status", task)
    by_id: dict[str, set[str]] = {}
    for call in statuses:
        by_id.setdefault(call["id"], set()).add(json.dumps(call))
    assert all(len(said) == 1 for said in by_id.values()), "an id has one content"
    shown = [text_of(call["params"]) for call in {call["id"]: call for call in statuses}.values()]
    assert shown == PIECES
    completions = hub.received("task.complete", task)
    assert len({json.dumps(call) for call in completions}) == 1
    assert text_of(completions[0]["params"]) == "".join(PIECES)
    assert runs.count(runs[-1]) == 1
    acknowledged = False
    for _, way, frame in hub.frames:
        if way == "out" and frame.get("id") == completions[0]["id"] and "result" in frame:
            acknowledged = True
        if way == "in" and frame.get("id") == completions[0]["id"]:
            assert not acknowledged, "nothing behind the acknowledgement"


async def exchange(hub: StubHub, settings: Settings, outside: redis.Redis, task: str) -> None:
    """One task from its call to the moment when nothing is owed any more."""
    async with HubConnector(hub.address, ["counter"], settings, pace=QUICK):
        await hub.execute(task, "x")
        await hub.completed(task)
        await eventually(lambda: not list(outside.scan_iter("skillstream:connect:*:open")), f"{hub.cut}: nothing is owed")


async def test_an_exchange_without_a_drop(
    pieces_worker: Worker, settings: Settings, runs: list[str], outside: redis.Redis
) -> None:
    async with StubHub() as hub:
        await exchange(hub, settings, outside, "t")
    assert len(hub.frames) == FRAMES
    check(hub, runs, "t")


async def test_a_drop_at_any_point_loses_and_repeats_nothing(
    pieces_worker: Worker, settings: Settings, runs: list[str], outside: redis.Redis
) -> None:
    for number, when in itertools.product(range(FRAMES), ("before", "after")):
        runs.clear()
        async with StubHub(Cut(number, when)) as hub:
            await exchange(hub, settings, outside, f"t-{number}-{when}")
        assert hub.cut is None, "the drop happened"
        check(hub, runs, f"t-{number}-{when}")


async def test_an_end_behind_the_drop_arrives(connected: StartConnector, gates: Gates, client: Client) -> None:
    async with StubHub() as hub, connected(hub):
        await hub.execute("t1", script(["say", "a"], ["reach", "running"], ["wait", "go"], ["say", "b"]))
        await hub.until(lambda: hub.received("task.status"), "the first piece comes")
        hub.takes_no_connection = True
        await hub.drop()
        gates.open("go")
        await client.task(gates.contexts[0].task_id).result(10)
        hub.takes_no_connection = False
        done = await hub.completed("t1")
    assert text_of(done) == "ab"
    assert [text_of(call["params"]) for call in hub.received("task.status")] == ["a", "b"]


async def test_a_hub_that_acknowledges_no_status_is_not_told_twice(connected: StartConnector, gates: Gates) -> None:
    async with StubHub() as hub:
        hub.answers_status = False
        async with connected(hub):
            await hub.execute("t0", script(["say", "it shows"]))
            await hub.completed("t0")
            await hub.execute("t1", script(["say", "a"], ["reach", "running"], ["wait", "go"], ["say", "b"]))
            await hub.until(lambda: hub.received("task.status", "t1"), "the first piece comes")
            await hub.drop()
            await hub.until(lambda: hub.connections == 2, "it comes back")
            gates.open("go")
            await hub.completed("t1")
    assert [text_of(call["params"]) for call in hub.received("task.status", "t1")] == ["a", "b"]


async def test_a_restarted_attempt_is_told_as_such(connected: StartConnector) -> None:
    async with StubHub() as hub, connected(hub):
        await hub.execute("t1", script(["attempt", 1, ["say", "first"], ["retry"]], ["attempt", 2, ["say", "second"]]))
        done = await hub.completed("t1")
    metadata = [call["params"].get("metadata") for call in hub.received("task.status")]
    assert {"code": "attempt_restarted", "attempt": 2, "keep": 0} in metadata
    assert text_of(done) == "second"


async def test_a_broker_that_goes_away_for_a_while_loses_nothing(settings: Settings, worker: Worker, gates: Gates) -> None:
    port = int(settings.redis_url.rsplit(":", 1)[1].partition("/")[0])
    async with CuttingProxy(port) as proxy, StubHub() as hub:
        through = settings.changed(redis_url=proxy.url)
        async with HubConnector(hub.address, ["verbs/stream"], through, pace=QUICK):
            await hub.execute("t1", script(["say", "a"], ["reach", "running"], ["wait", "go"], ["say", "b"]))
            await gates.reached("running")
            proxy.drop()
            gates.open("go")
            assert text_of(await hub.completed("t1")) == "ab"
            proxy.drop()
            await hub.execute("t2", script(["say", "c"]))
            assert text_of(await hub.completed("t2")) == "c"


def connector(hub: StubHub, settings: Settings) -> Process:
    """The connector as a process of its own."""
    env = {"SKILLSTREAM_HUB_KEY": KEY, "SKILLSTREAM_REDIS_URL": settings.redis_url, "SKILLSTREAM_SHARDS": str(settings.shards)}
    return Process("connect", "hub", hub.url, "--agent", "verbs/stream", "--api", hub.api_url, env=env)


async def test_what_was_owed_survives_kill_9_of_the_connector(
    settings: Settings, worker: Worker, gates: Gates, client: Client, outside: redis.Redis
) -> None:
    async with StubHub() as hub:
        with connector(hub, settings) as first:
            await hub.execute("t1", script(["say", "a"], ["reach", "running"], ["wait", "go"], ["say", "b"]))
            await hub.until(lambda: hub.received("task.status"), "the first piece comes", 20)
            hub.silences = 1
            await hub.execute("t2", script(["say", "unheard"]))
            await hub.until(lambda: hub.received("task.complete", "t2"), "the end that is not answered comes")
            first.kill()
        gates.open("go")
        await client.task(gates.contexts[0].task_id).result(10)
        with connector(hub, settings):
            done, heard = await hub.completed("t1"), await hub.completed("t2")
    assert (text_of(done), text_of(heard)) == ("ab", "unheard")
    assert len(gates.contexts) == 2
    first_end, second_end = hub.received("task.complete", "t2")
    assert first_end == second_end
    assert len(hub.received("task.complete", "t1")) == 1
    shown = {call["id"]: text_of(call["params"]) for call in hub.received("task.status", "t1")}
    assert list(shown.values()) == ["a", "b"]


async def test_the_command_stops_cleanly_and_refuses_without_a_key(settings: Settings, worker: Worker) -> None:
    async with StubHub() as hub:
        with connector(hub, settings) as process:
            await said(process, "connected verbs to the hub")
            process.send(signal.SIGTERM)
            assert await ended(process) == 0
        with Process("connect", "hub", hub.url, env={"SKILLSTREAM_REDIS_URL": settings.redis_url}) as process:
            assert await ended(process) == 2
            assert any("invalid_settings" in line for line in process.lines)


async def said(process: Process, words: str) -> str:
    """Waits for words of a process while this loop's hub goes on."""
    return await asyncio.to_thread(process.wait_for, words)


async def ended(process: Process) -> int:
    """Waits for the end of a process while this loop's hub goes on."""
    return await asyncio.to_thread(process.wait)
