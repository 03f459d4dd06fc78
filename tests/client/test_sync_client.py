"""The client without asyncio: the same calls from plain threads."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from skillstream import SyncClient
from skillstream_schemas.card import SkillCard
from skillstream_schemas.errors import BrokerUnavailable, InvalidSettings, ResultTimeout, UnknownSkill, UnknownTask
from skillstream_schemas.event import FinalEvent
from skillstream_schemas.settings import Settings
from skillstream_schemas.state import TaskState
from tests.conftest import make_settings
from tests.support.redis_server import free_port

from .bounds import BOUND_S
from .hand_worker import AGENT, HandWorker

pytestmark = pytest.mark.fake


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "skillstream-client"]


def test_submit_follow_and_result(settings: Settings, hand: HandWorker) -> None:
    with SyncClient(settings=settings) as client:
        task = client.submit(AGENT, "say", "hi", task_id="t1")
        assert (repr(task), task.stream) == ("<SyncTask t1>", settings.keys.events("t1"))
        texts = task.text()
        hand.run("t1", "a", "b")
        assert list(texts) == ["a", "b"]
        assert [event.type for event in task.events(after="1-2")] == ["chunk", "final"]
        assert task.result(timeout=BOUND_S).text == "ab"
        assert client.task("t1").cancel("late").state is TaskState.COMPLETED
    assert threads() == []


def test_many_threads_share_one_client(settings: Settings, hand: HandWorker) -> None:
    def run(number: int) -> str:
        task = client.submit(AGENT, "say", str(number))
        return task.cancel(str(number), timeout=BOUND_S).reason or ""

    with SyncClient(settings=settings) as client, ThreadPoolExecutor(8) as pool:
        assert list(pool.map(run, range(40), timeout=BOUND_S * 2)) == [str(number) for number in range(40)]


def test_an_unknown_skill_lists_the_known_ones(settings: Settings, hand: HandWorker) -> None:
    hand.announce(SkillCard(name="say"), SkillCard(name="shout"))
    with SyncClient(settings=settings) as client:
        with pytest.raises(UnknownSkill, match="say, shout"):
            client.submit(AGENT, "sing", "la")
        assert set(client.agents()) == {AGENT}


def test_errors_come_through(settings: Settings, hand: HandWorker) -> None:
    with SyncClient(settings=settings) as client:
        with pytest.raises(UnknownTask):
            client.task("nowhere").result(timeout=BOUND_S)
        hand.submit("t1")
        with pytest.raises(ResultTimeout):
            client.task("t1").result(timeout=0.05)


def test_leaving_a_loop_early_ends_the_following(settings: Settings, hand: HandWorker) -> None:
    hand.submit("t1")
    with SyncClient(settings=settings) as client:
        for event in client.task("t1").events():
            assert not isinstance(event, FinalEvent)
            break
        assert "feeds=0" in repr(client._client._hub)


@pytest.mark.parametrize("closers", [1, 3])
def test_who_waits_while_another_thread_closes_is_told(settings: Settings, hand: HandWorker, closers: int) -> None:
    hand.submit("t1")
    client = SyncClient(settings=settings)
    is_awaited = threading.Event()

    async def late() -> None:
        is_awaited.set()
        await asyncio.Event().wait()  # what ends of itself behind the closing, if at all

    with ThreadPoolExecutor(8) as pool:
        waiting: list[Future[Any]] = [pool.submit(client._run, late()), pool.submit(client.task("t1").result)]
        assert is_awaited.wait(BOUND_S)
        for closing in [pool.submit(client.close) for _ in range(closers)]:
            closing.result(timeout=BOUND_S)
        for answer in waiting:
            with pytest.raises(BrokerUnavailable):
                answer.result(timeout=BOUND_S)
    with pytest.raises(BrokerUnavailable, match="closed"):
        client.submit(AGENT, "say", "hi")
    assert threads() == []


def test_what_the_loop_is_given_behind_its_last_turn_is_told(
    settings: Settings, hand: HandWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = SyncClient(settings=settings)
    given: list[Coroutine[Any, Any, object]] = []

    run = asyncio.run_coroutine_threadsafe

    def too_late(work: Coroutine[Any, Any, object], loop: asyncio.AbstractEventLoop) -> Future[object]:
        if given:
            return run(work, loop)
        given.append(work)
        client.close()
        return Future()

    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", too_late)
    with pytest.raises(BrokerUnavailable, match="closed"):
        client.agents()
    assert len(given) == 1


_FORKED = """
import os, sys
from skillstream import SyncClient
from skillstream_schemas.errors import BrokerUnavailable
client = SyncClient(sys.argv[1])
for _ in range(2):
    client.submit("echo", "say", "hi")
if not os.fork():
    for call in (lambda: client.submit("echo", "say", "hi"), client.agents):
        try:
            call()
        except BrokerUnavailable as error:
            print(error.message, flush=True)
    client.close()
    os._exit(0)
os.wait()
client.submit("echo", "say", "hi")
client.close()
"""


def test_behind_a_fork_a_client_says_that_it_is_another_process_s(settings: Settings, hand: HandWorker) -> None:
    environment = {"SKILLSTREAM_SHARDS": str(settings.shards)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", _FORKED, settings.redis_url],
        capture_output=True, text=True, timeout=BOUND_S * 4, env=os.environ | environment, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["the client was made before a fork, by another process"] * 2
    assert len(hand.queued()) == 3


def test_closing_twice_is_safe(settings: Settings, hand: HandWorker) -> None:
    client = SyncClient(settings=settings)
    client.close()
    client.close()
    assert threads() == []


def test_a_closed_client_says_so(settings: Settings, hand: HandWorker) -> None:
    hand.submit("t1")
    with SyncClient(settings=settings) as client:
        task = client.task("t1")
        events, dropped = task.events(), task.events()
        next(events)
        next(dropped)
    dropped.close()  # type: ignore[attr-defined]
    calls: list[Any] = [client.agents, task.result, task.cancel, lambda: next(events), lambda: list(task.text())]
    for call in calls:
        with pytest.raises(BrokerUnavailable):
            call()


def test_a_client_that_cannot_open_leaves_no_thread() -> None:
    with pytest.raises(BrokerUnavailable):
        SyncClient(settings=make_settings(f"redis://127.0.0.1:{free_port()}/0"))
    with pytest.raises(InvalidSettings):
        SyncClient("localhost")
    assert threads() == []
