"""The scripts of submit, enqueue, cancel and settle, seen from outside through redis-py."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import redis
from arq.jobs import deserialize_job_raw

from skillstream.broker import Broker, CancelRecorded, Settlement, Submitted
from skillstream_schemas import keys as arq_keys
from skillstream_schemas.event import FinalEvent, event_from_fields
from skillstream_schemas.ids import EventId
from skillstream_schemas.job import read_job, unpack
from skillstream_schemas.request import TaskRequest
from skillstream_schemas.settings import Settings
from skillstream_schemas.state import TaskState
from tests.support.submissions import submission_of

from .bounds import soon
from .hand_worker import AGENT, HandWorker
from .reading import near, server_ms

REQUEST = TaskRequest(agent=AGENT, skill="say", message="grüß {dich}\n", metadata={"n": 1})
MEMBER = arq_keys.job_id(AGENT, "t1")
DAY_MS = 86_400_000
WEEK_MS = 7 * DAY_MS

pytestmark = pytest.mark.fake


def raw_job(outside: redis.Redis, member: str = MEMBER) -> bytes:
    """The job's bytes: `outside` decodes answers, so they are read on a connection of their own."""
    options = outside.connection_pool.connection_kwargs
    binary = redis.Redis(host=options["host"], port=options["port"])
    try:
        data: Any = binary.get(arq_keys.job(member))
    finally:
        binary.close()
    assert isinstance(data, bytes)
    return data


class TestSubmit:
    async def test_a_new_task_stands_on_its_stream_and_rings(
        self, broker: Broker, hand: HandWorker, outside: redis.Redis
    ) -> None:
        before_ms = server_ms(outside)
        assert await soon(broker.submit(submission_of("t1", REQUEST))) is None
        [(event_id, fields)] = hand.entries("t1")
        assert event_id == "0-1"
        assert list(fields)[:4] == ["type", "state", "v", "at"]
        assert before_ms - 1 <= int(fields["at"]) <= server_ms(outside)
        event = event_from_fields(EventId(0, 1), fields)
        assert event.type == "status"
        assert event.request == REQUEST
        assert hand.rings("t1") == ["submitted"]

    async def test_a_known_task_answers_with_the_first_request(self, broker: Broker, hand: HandWorker) -> None:
        await broker.submit(submission_of("t1", REQUEST))
        before = hand.entries("t1")
        again = await soon(broker.submit(submission_of("t1", REQUEST.model_copy(update={"message": "other"}))))
        assert again == Submitted(REQUEST, ended=False)
        assert hand.entries("t1") == before
        assert hand.rings("t1") == ["submitted"]

    async def test_an_ended_task_is_told_as_ended(self, broker: Broker, hand: HandWorker) -> None:
        await broker.submit(submission_of("t1", REQUEST))
        hand.run("t1", "hi")
        assert await soon(broker.submit(submission_of("t1", REQUEST))) == Submitted(REQUEST, ended=True)

    async def test_a_hundred_at_once_make_one_task(self, broker: Broker, hand: HandWorker) -> None:
        answers = await soon(asyncio.gather(*(broker.submit(submission_of("t1", REQUEST)) for _ in range(100))))
        assert answers.count(None) == 1
        assert answers.count(Submitted(REQUEST, ended=False)) == 99
        assert len(hand.entries("t1")) == 1
        assert hand.rings("t1") == ["submitted"]


class TestEnqueue:
    async def test_the_job_is_one_that_arq_reads(self, broker: Broker, hand: HandWorker, outside: redis.Redis) -> None:
        before_ms = server_ms(outside)
        await soon(broker.enqueue(AGENT, "t1"))
        data = raw_job(outside)
        function, args, kwargs, job_try, enqueued_ms = deserialize_job_raw(data, deserializer=unpack)
        assert (function, list(args), kwargs) == ("run_skill", [], {})
        assert str(job_try) == "None"  # arq types it as an int
        assert before_ms - 1 <= enqueued_ms <= server_ms(outside)
        assert read_job(data).enqueued_ms == enqueued_ms
        assert hand.queued() == {MEMBER: enqueued_ms}
        assert outside.lrange("skillstream:wake:{echo}", 0, -1) == [MEMBER]

    async def test_a_delay_moves_the_moment_from_which_it_may_be_claimed(
        self, broker: Broker, hand: HandWorker, outside: redis.Redis
    ) -> None:
        await soon(broker.enqueue(AGENT, "t1", delay_ms=90_000))
        assert abs(hand.queued()[MEMBER] - server_ms(outside) - 90_000) < 10_000

    @pytest.mark.guarantee("G6")
    async def test_a_repeat_moves_no_leased_job(self, broker: Broker, hand: HandWorker, outside: redis.Redis) -> None:
        await broker.enqueue(AGENT, "t1")
        job = raw_job(outside)
        lease_end = server_ms(outside) + 15_000
        outside.zadd(arq_keys.queue(AGENT), {MEMBER: lease_end})
        outside.set(arq_keys.in_progress(MEMBER), "w1:1", px=15_000)
        await soon(broker.enqueue(AGENT, "t1"))
        assert hand.queued() == {MEMBER: pytest.approx(lease_end, abs=1)}
        assert outside.get(arq_keys.in_progress(MEMBER)) == "w1:1"
        assert raw_job(outside) == job

    async def test_the_wake_list_is_capped(self, broker: Broker, hand: HandWorker, outside: redis.Redis) -> None:
        outside.rpush("skillstream:wake:{echo}", *(f"old-{number}" for number in range(10_000)))
        await soon(broker.enqueue(AGENT, "t1"))
        assert outside.llen("skillstream:wake:{echo}") == 10_000
        assert outside.lrange("skillstream:wake:{echo}", -2, -1) == ["old-9999", MEMBER]


class TestCancel:
    async def test_an_unknown_task(self, broker: Broker, outside: redis.Redis) -> None:
        assert await soon(broker.request_cancel("t1", "why")) is None
        assert not [key for key in outside.scan_iter() if key.endswith(":cancel")]

    @pytest.mark.parametrize("reason", ["user left", "", "Grüße\n\x00"])
    async def test_a_queued_task(
        self, broker: Broker, hand: HandWorker, outside: redis.Redis, settings: Settings, reason: str
    ) -> None:
        await broker.submit(submission_of("t1", REQUEST))
        assert await soon(broker.request_cancel("t1", reason)) == CancelRecorded(EventId(0, 1), AGENT, is_waiting=True)
        assert outside.get(settings.keys.cancel("t1")) == reason
        assert hand.rings("t1") == ["submitted", "cancel"]
        assert len(hand.entries("t1")) == 1

    async def test_a_running_task_is_told_to_workers(
        self, broker: Broker, hand: HandWorker, outside: redis.Redis, settings: Settings
    ) -> None:
        hand.submit("t1")
        hand.open("t1")
        hand.say("t1", "a")
        with outside.pubsub() as heard:  # type: ignore[no-untyped-call]
            heard.subscribe(settings.keys.control)
            heard.get_message(timeout=10)
            assert await soon(broker.request_cancel("t1", "why")) == CancelRecorded(EventId(1, 2), AGENT, is_waiting=False)
            message = heard.get_message(timeout=10)
        assert message is not None
        assert message["data"] == "t1"

    async def test_an_ended_task_keeps_its_final(
        self, broker: Broker, hand: HandWorker, outside: redis.Redis, settings: Settings
    ) -> None:
        hand.submit("t1")
        hand.run("t1", "done")
        final = await soon(broker.request_cancel("t1", "why"))
        assert isinstance(final, FinalEvent)
        assert (final.state, final.text, str(final.id)) == (TaskState.COMPLETED, "done", "1-3")
        assert outside.exists(settings.keys.cancel("t1")) == 0
        assert "cancel" not in hand.rings("t1")


class TestSettle:
    async def test_jobs_leave_the_queue_with_all_their_keys(self, broker: Broker, hand: HandWorker, outside: redis.Redis) -> None:
        for task_id in ("t1", "t2", "t3"):
            await broker.enqueue(AGENT, task_id)
            outside.set(arq_keys.in_progress(arq_keys.job_id(AGENT, task_id)), "w1:1", ex=60)
            outside.set(arq_keys.retry(arq_keys.job_id(AGENT, task_id)), "1", ex=60)
        await soon(broker.settle(AGENT, [Settlement("t1"), Settlement("t2", b"\x81\xa1s\xc3")]))
        left = {key for key in outside.scan_iter() if key.startswith("arq:")}
        member = arq_keys.job_id(AGENT, "t3")
        assert left == {
            arq_keys.queue(AGENT), arq_keys.job(member), arq_keys.in_progress(member), arq_keys.retry(member),
            arq_keys.result(arq_keys.job_id(AGENT, "t2")),
        }  # fmt: skip
        assert set(hand.queued()) == {member}
        assert 0 < int(str(outside.pttl(arq_keys.result(arq_keys.job_id(AGENT, "t2"))))) <= 3_600_000
        outside.delete(arq_keys.in_progress(member))

    async def test_settling_twice_is_safe(self, broker: Broker, hand: HandWorker) -> None:
        await broker.enqueue(AGENT, "t1")
        for _ in range(2):
            await soon(broker.settle(AGENT, [Settlement("t1")]))
        assert hand.queued() == {}


class TestExpiry:
    @pytest.mark.guarantee("G15")
    @pytest.mark.parametrize("delay_ms", [0, DAY_MS])
    async def test_every_key_of_a_task_expires(
        self, broker: Broker, hand: HandWorker, outside: redis.Redis, settings: Settings, delay_ms: int
    ) -> None:
        await broker.submit(submission_of("t1", REQUEST, delay_ms=delay_ms))
        await broker.request_cancel("t1", "why")
        for key in (settings.keys.events("t1"), settings.keys.cancel("t1"), arq_keys.job(MEMBER)):
            assert near(int(str(outside.pttl(key))), WEEK_MS + delay_ms), key
        assert near(int(str(outside.pttl("skillstream:wake:{echo}"))), 3_600_000)
