"""The client without asyncio: the same calls from plain threads."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
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
