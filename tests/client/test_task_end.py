"""How a caller gets a task's end: waits for it, or cancels the task."""

from __future__ import annotations

import asyncio

import pytest
import redis

from skillstream import Client
from skillstream.task import Task
from skillstream_schemas import keys as arq_keys
from skillstream_schemas.errors import (
    BrokerUnavailable,
    InvalidRequest,
    ResultTimeout,
)
from skillstream_schemas.settings import Settings
from skillstream_schemas.state import TaskState

from .bounds import collected, soon, until
from .hand_worker import AGENT, HandWorker

pytestmark = pytest.mark.fake


class TestResult:
    async def test_the_final_of_an_ended_task(self, client: Client, hand: HandWorker) -> None:
        hand.submit("t1")
        hand.run("t1", "a", "b")
        final = await soon(client.task("t1").result())
        assert (str(final.id), final.state, final.text, final.chunks) == ("1-4", TaskState.COMPLETED, "ab", 2)

    async def test_it_is_waited_for(self, client: Client, hand: HandWorker) -> None:
        hand.submit("t1")
        waiting = asyncio.create_task(client.task("t1").result(timeout=10))
        await asyncio.sleep(0)
        hand.run("t1", *"abc")
        assert (await soon(waiting)).text == "abc"

    async def test_holes_and_attempts_before_it_do_not_matter(self, client: Client, hand: HandWorker) -> None:
        hand.submit("t1")
        hand.open("t1")
        hand.say("t1", "x", seq=7)
        hand.open("t1", 4)
        hand.finish("t1", "4-9", "end", chunks=0, state="input-required")
        assert (await soon(client.task("t1").result())).state is TaskState.INPUT_REQUIRED

    async def test_patience_has_an_end_and_the_task_goes_on(self, client: Client, hand: HandWorker) -> None:
        hand.submit("t1")
        with pytest.raises(ResultTimeout, match="t1"):
            await soon(client.task("t1").result(timeout=0.05))
        hand.run("t1", "a")
        assert (await soon(client.task("t1").result(timeout=10))).text == "a"
        assert "feeds=0" in repr(client._hub)

    async def test_a_client_that_was_closed(self, settings: Settings, hand: HandWorker) -> None:
        hand.submit("t1")
        async with Client(settings=settings) as closed:
            task = closed.task("t1")
            waiting = asyncio.create_task(task.result())
            await asyncio.sleep(0)
        for awaited in (waiting, task.result(), collected(task.events()), task.cancel()):
            with pytest.raises(BrokerUnavailable):
                await soon(awaited)


class TestCancel:
    async def test_a_queued_task_is_closed_and_settled_at_once(
        self, client: Client, hand: HandWorker, outside: redis.Redis
    ) -> None:
        task = await client.submit(AGENT, "say", "hi")
        final = await soon(task.cancel("user left"))
        assert (final.state, final.reason, final.text, str(final.id)) == (TaskState.CANCELED, "user left", "", "1-2")
        [_, (opening_id, opening), (final_id, fields)] = hand.entries(task.id)
        assert (opening_id, opening["worker"], final_id) == ("1-1", "canceller", "1-2")
        assert (fields["state"], fields["reason"], fields["metadata"]) == (
            "canceled", "user left", '{"agentId":"echo","agentName":"echo"}'
        )  # fmt: skip
        assert hand.rings(task.id) == ["submitted", "cancel", "final"]
        assert hand.queued() == {}
        assert outside.exists(arq_keys.job(arq_keys.job_id(AGENT, task.id))) == 0
        assert await soon(task.cancel("again")) == final
        assert await soon(task.result()) == final

    async def test_cancelling_twice_at_once_ends_it_once(self, client: Client, hand: HandWorker) -> None:
        task = await client.submit(AGENT, "say", "hi")
        one, other = await soon(asyncio.gather(task.cancel("one"), task.cancel("other")))
        assert one == other
        assert [entry_id for entry_id, _ in hand.entries(task.id)] == ["0-1", "1-1", "1-2"]

    async def test_an_ended_task_keeps_its_end(self, client: Client, hand: HandWorker) -> None:
        hand.submit("t1")
        hand.run("t1", "done")
        assert (await soon(client.task("t1").cancel("late"))).state is TaskState.COMPLETED
        assert hand.entries("t1")[-1][0] == "1-3"

    async def test_a_running_task_is_ended_by_its_worker(
        self, client: Client, hand: HandWorker, outside: redis.Redis, settings: Settings
    ) -> None:
        hand.submit("t1")
        hand.open("t1")
        hand.say("t1", "half")
        waiting = asyncio.create_task(client.task("t1").cancel("enough", timeout=10))
        await until(lambda: outside.get(settings.keys.cancel("t1")) is not None)
        assert not waiting.done()
        hand.finish("t1", "1-3", "half", chunks=1, state="canceled", reason="enough")
        final = await soon(waiting)
        assert (final.state, final.text, final.reason) == (TaskState.CANCELED, "half", "enough")

    async def test_a_worker_that_does_not_answer(
        self, client: Client, hand: HandWorker, outside: redis.Redis, settings: Settings
    ) -> None:
        hand.submit("t1")
        hand.open("t1")
        with pytest.raises(ResultTimeout):
            await soon(client.task("t1").cancel("enough", timeout=0.05))
        assert outside.get(settings.keys.cancel("t1")) == "enough"
        assert [entry_id for entry_id, _ in hand.entries("t1")] == ["0-1", "1-1"]

    @pytest.mark.guarantee("G13")
    @pytest.mark.parametrize("reason", ["half \ud83d", "é" * 40_000])
    async def test_a_reason_that_no_event_can_hold(
        self, client: Client, hand: HandWorker, outside: redis.Redis, settings: Settings, reason: str
    ) -> None:
        hand.submit("t1")
        with pytest.raises(InvalidRequest, match="reason"):
            await soon(client.task("t1").cancel(reason))
        assert outside.exists(settings.keys.cancel("t1")) == 0


def test_a_handle_prints_its_id_and_knows_its_stream(settings: Settings) -> None:
    task: Task = Client(settings=settings).task("t1")
    assert repr(task) == "<Task t1>"
    assert task.stream == settings.keys.events("t1")
