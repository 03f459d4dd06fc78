"""Bad input ends as its coded failure, or is removed; the worker goes on with the next task (guarantee G13)."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any, cast

import msgpack
import pytest
import redis

from skillstream_schemas import keys as arq_keys
from skillstream_schemas.job import pack
from skillstream_schemas.limits import Limits
from skillstream_schemas.settings import Settings
from skillstream_worker import Agent, Worker
from tests.client.bounds import until
from tests.client.hand_worker import HandWorker
from tests.support.verbs import AGENT, Gates, script

from .conftest import Play, StartWorker
from .view import View

pytestmark = pytest.mark.guarantee("G13")
GOOD = script(["say", "good"])
REQUEST = {"skill": "stream", "message": GOOD}


class Intruder:
    """Responsible for putting things on the broker that no client of ours would."""

    def __init__(self, view: View, settings: Settings) -> None:
        self._view, self._settings = view, settings

    def queue(self, task_id: str, payload: bytes | None) -> None:
        """Queues a job with these bytes, or without any."""
        member = arq_keys.job_id(AGENT, task_id)
        if payload is not None:
            self._view.redis.set(arq_keys.job(member), payload, px=600_000)
        self.enlist(member)

    def enlist(self, member: str | bytes) -> None:
        """Puts a member on the queue, due now."""
        self._view.redis.zadd(arq_keys.queue(AGENT), {member: self._view.now_ms()})

    def stream(self, task_id: str, fields: dict[str, Any], entry_id: str = "0-1") -> None:
        """Adds an entry to a task's stream."""
        key = self._settings.keys.events(task_id)
        self._view.redis.xadd(key, fields, id=entry_id)
        self._view.redis.expire(key, 600)


@pytest.fixture
def intruder(view: View, settings: Settings) -> Intruder:
    return Intruder(view, settings)


@pytest.fixture
async def works_after(worker: Worker, play: Play, view: View) -> AsyncIterator[None]:
    """After the test the worker runs a good task and the queue is empty."""
    yield
    task = await play(["say", "good"])
    assert view.final(task.id)["text"] == "good"
    await until(lambda: not view.queued())


def stock_job(*args: Any, function: str = "run_skill", **changes: Any) -> bytes:
    """A job as a stock arq client packs it."""
    return pack({"t": None, "f": function, "a": list(args), "k": {}, "et": 1_700_000_000_000} | changes)


NO_JOBS = {
    "no msgpack": b"\xc1",
    "empty": b"\x80",
    "cut off": stock_job(REQUEST)[:-3],
    "trailing bytes": stock_job(REQUEST) + b"\x00",
    "not UTF-8": msgpack.packb({"t": None, "f": b"\xff\xfe", "a": [], "k": {}, "et": 1}, use_bin_type=False),
    "pickle": b"\x80\x04\x95\x0e\x00\x00\x00\x00\x00\x00\x00}\x94\x8c\x01f\x94\x8c\x03run\x94s.",
    "JSON": b'{"f":"run_skill"}',
    "a list": pack([1, 2]),
    "no time": pack({"t": None, "f": "run_skill", "a": [], "k": {}}),
    "keyword arguments": stock_job(k={"message": "x"}),
    "two arguments": stock_job(REQUEST, REQUEST),
    "an argument that is no map": stock_job("x"),
    "deep": b"\x91" * 5000 + b"\xc0",
}


@pytest.mark.usefixtures("works_after")
@pytest.mark.parametrize("kind", list(NO_JOBS))
async def test_a_job_that_cannot_be_read_ends_as_malformed(view: View, intruder: Intruder, kind: str) -> None:
    intruder.queue("t1", NO_JOBS[kind])
    await until(lambda: len(view.entries("t1")) == 3)
    assert view.shape("t1") == ["submitted", "working", "final failed"]
    assert view.final("t1")["error"] == "malformed_job"
    assert view.final("t1")["reason"]
    await until(lambda: not view.queued())
    assert view.arq_keys_of("t1") == []


@pytest.mark.usefixtures("works_after")
async def test_a_job_of_another_function_is_unknown(view: View, intruder: Intruder) -> None:
    intruder.queue("t1", stock_job(REQUEST, function="send_mail"))
    await until(lambda: len(view.entries("t1")) == 3)
    final = view.final("t1")
    assert (final["state"], final["error"]) == ("failed", "unknown_function")
    assert final["reason"] == "the job calls 'send_mail'; jobs of a skill call 'run_skill'"


BAD_REQUESTS: dict[str, tuple[dict[str, Any], str]] = {
    "no message": ({"skill": "stream"}, "malformed_request"),
    "no skill": ({"message": GOOD}, "malformed_request"),
    "empty": ({}, "malformed_request"),
    "a message that is no text": (REQUEST | {"message": 5}, "malformed_request"),
    "a skill that is no text": (REQUEST | {"skill": [1]}, "malformed_request"),
    "an unknown field": (REQUEST | {"colour": "red"}, "malformed_request"),
    "another agent": (REQUEST | {"agent": "other"}, "malformed_request"),
    "a context id that no key may have": (REQUEST | {"context_id": "a b"}, "malformed_request"),
    "a deadline that is no time": (REQUEST | {"deadline": "tomorrow"}, "malformed_request"),
    "a deadline behind the year 9999": (REQUEST | {"deadline": 253_402_351_199_000}, "malformed_request"),
    "metadata that is no map": (REQUEST | {"metadata": [1]}, "malformed_request"),
    "a message beyond the limit": (REQUEST | {"message": "ä" * 600}, "message_too_large"),
    "metadata beyond the limit": (REQUEST | {"metadata": {"x": "y" * 1100}}, "message_too_large"),
    "an unknown skill": (REQUEST | {"skill": "gone"}, "unknown_skill"),
}


@pytest.mark.parametrize("kind", list(BAD_REQUESTS))
async def test_a_stock_request_that_cannot_be_run_fails(
    view: View, intruder: Intruder, kind: str, start_worker: StartWorker, agent: Agent, gates: Gates
) -> None:
    request, code = BAD_REQUESTS[kind]
    await start_worker(agent, limits=Limits(message_bytes=1024))
    intruder.queue("t1", stock_job(request))
    intruder.queue("t2", stock_job(REQUEST))
    await until(lambda: not view.queued())
    assert view.shape("t1") == ["submitted", "working", "final failed"]
    assert view.final("t1")["error"] == code
    assert view.final("t1")["reason"]
    assert view.final("t2")["text"] == "good"
    assert len(gates.contexts) == 1


async def test_a_stock_request_cannot_set_what_the_agent_sets(view: View, intruder: Intruder, worker: Worker) -> None:
    intruder.queue("t1", stock_job(REQUEST | {"price_micros": 1, "max_attempts": 900, "on_retry": "fail"}))
    await until(lambda: not view.queued())
    submission = view.entries("t1")[0][1]
    assert (submission["price_micros"], submission["max_attempts"], submission["on_retry"]) == ("0", "3", "restart")
    assert view.final("t1")["text"] == "good"


SUBMISSION = {
    "type": "status", "state": "submitted", "v": "1", "at": "1", "agent": AGENT, "skill": "stream", "message": GOOD,
}  # fmt: skip
BAD_SUBMISSIONS: dict[str, dict[Any, Any]] = {
    "not UTF-8": SUBMISSION | {"message": b"\xff\xfe"},
    "a field name that is not UTF-8": SUBMISSION | {b"\xff": "x"},
    "no message": {name: value for name, value in SUBMISSION.items() if name != "message"},
    "no skill": {name: value for name, value in SUBMISSION.items() if name != "skill"},
    "no version": {name: value for name, value in SUBMISSION.items() if name != "v"},
    "another version": SUBMISSION | {"v": "2"},
    "another type": SUBMISSION | {"type": "chunk"},
    "no type": {"x": "y"},
    "an unknown field": SUBMISSION | {"colour": "red"},
    "metadata that is no JSON": SUBMISSION | {"metadata": "{"},
    "attempts that are no number": SUBMISSION | {"max_attempts": "many"},
    "a price that is no number": SUBMISSION | {"price_micros": "much"},
    "an unknown on_retry": SUBMISSION | {"on_retry": "maybe"},
    "a lone surrogate in JSON": SUBMISSION | {"metadata": '{"x":"\\ud800"}'},
}


@pytest.mark.usefixtures("works_after")
@pytest.mark.parametrize("kind", list(BAD_SUBMISSIONS))
async def test_a_submission_that_cannot_be_read_is_closed(view: View, intruder: Intruder, gates: Gates, kind: str) -> None:
    intruder.stream("t1", BAD_SUBMISSIONS[kind])
    intruder.queue("t1", stock_job())
    await until(lambda: not view.queued())
    raw = _raw_final(view, "t1")
    assert (raw[b"type"], raw[b"state"], raw[b"error"]) == (b"final", b"failed", b"malformed_request")
    assert raw[b"reason"]
    assert gates.contexts == []


@pytest.mark.usefixtures("works_after")
@pytest.mark.parametrize("kind", ["attempts that are no number", "not UTF-8", "no skill"])
async def test_a_bad_submission_whose_first_worker_died_is_closed(
    view: View, intruder: Intruder, hand: HandWorker, kind: str
) -> None:
    intruder.stream("t1", BAD_SUBMISSIONS[kind])
    hand.open("t1")
    intruder.queue("t1", stock_job())
    await until(lambda: not view.queued())
    assert _raw_final(view, "t1")[b"error"] == b"malformed_request"


BAD_OPENINGS: dict[str, dict[Any, Any]] = {
    "no fields of an opening": {"type": "status", "text": "x", "at": "1"},
    "a claim that is no number": {"type": "status", "state": "working", "worker": "w", "claim": "x", "strikes": "1", "at": "1"},
    "strikes that are no number": {"type": "status", "state": "working", "worker": "w", "claim": "1", "strikes": "x", "at": "1"},
    "not UTF-8": {"type": "status", "state": "working", "worker": b"\xff", "claim": "1", "strikes": "1", "at": "1"},
}


@pytest.mark.usefixtures("works_after")
@pytest.mark.parametrize("kind", list(BAD_OPENINGS))
async def test_a_task_with_a_bad_opening_comes_to_its_end(view: View, intruder: Intruder, kind: str) -> None:
    intruder.stream("t1", SUBMISSION)
    intruder.stream("t1", BAD_OPENINGS[kind], "1-1")
    intruder.queue("t1", stock_job())
    await until(lambda: not view.queued())
    assert _raw_final(view, "t1")[b"state"] in (b"completed", b"failed")


@pytest.mark.usefixtures("works_after")
@pytest.mark.parametrize("kind", ["not UTF-8", "a gap"])
async def test_a_task_that_cannot_be_resumed_comes_to_its_end(
    view: View, intruder: Intruder, hand: HandWorker, kind: str
) -> None:
    intruder.stream("t1", SUBMISSION | {"on_retry": "resume"})
    hand.open("t1")
    if kind == "a gap":
        intruder.stream("t1", {"type": "chunk", "text": "x", "at": "1"}, "1-3")
    else:
        intruder.stream("t1", {"type": "chunk", "text": b"\xff", "at": "1"}, "1-2")
    intruder.queue("t1", stock_job())
    await until(lambda: not view.queued())
    assert _raw_final(view, "t1")[b"state"] == b"failed"


@pytest.mark.usefixtures("works_after")
async def test_a_canceled_task_with_a_gap_comes_to_its_end(
    view: View, intruder: Intruder, hand: HandWorker, settings: Settings
) -> None:
    intruder.stream("t1", SUBMISSION)
    hand.open("t1")
    intruder.stream("t1", {"type": "chunk", "text": "x", "at": "1"}, "1-3")
    view.redis.set(settings.keys.cancel("t1"), "enough", px=60_000)
    intruder.queue("t1", stock_job())
    await until(lambda: not view.queued())
    assert _raw_final(view, "t1")[b"type"] == b"final"


@pytest.mark.usefixtures("works_after")
@pytest.mark.parametrize("reason", [b"\xff\xfe", b""])
async def test_a_reason_of_a_cancellation_that_is_no_text(
    view: View, intruder: Intruder, settings: Settings, reason: bytes
) -> None:
    intruder.stream("t1", SUBMISSION)
    view.redis.set(settings.keys.cancel("t1"), reason, px=60_000)
    intruder.queue("t1", stock_job())
    await until(lambda: not view.queued())
    assert view.final("t1")["state"] == "canceled"


@pytest.mark.usefixtures("works_after")
async def test_a_stream_with_ids_of_the_clock_comes_to_its_end(view: View, intruder: Intruder) -> None:
    intruder.stream("t1", SUBMISSION, "*")
    intruder.queue("t1", stock_job())
    await until(lambda: not view.queued())
    assert view.entries("t1")[-1][1]["type"] == "final"


@pytest.mark.usefixtures("works_after")
async def test_a_turn_before_that_cannot_be_read_is_no_history(play: Play, view: View, intruder: Intruder, gates: Gates) -> None:
    intruder.stream("before", SUBMISSION | {"message": b"\xff", "context_id": "c1"})
    task = await play(["say", "x"], context_id="c1", follows="before")
    assert view.final(task.id)["state"] == "completed"
    assert gates.contexts[0].conversation_history == []


@pytest.mark.usefixtures("works_after")
async def test_a_job_that_is_gone_is_run_from_its_stream(view: View, intruder: Intruder) -> None:
    intruder.stream("t1", SUBMISSION)
    intruder.queue("t1", None)
    await until(lambda: not view.queued())
    assert view.final("t1")["text"] == "good"


@pytest.mark.usefixtures("works_after")
async def test_a_job_that_turned_to_garbage_is_run_from_its_stream(view: View, intruder: Intruder) -> None:
    intruder.stream("t1", SUBMISSION)
    intruder.queue("t1", b"\xc1")
    await until(lambda: not view.queued())
    assert view.final("t1")["text"] == "good"


async def test_a_task_without_job_and_stream_is_left_to_the_router(
    view: View,
    intruder: Intruder,
    worker: Worker,
    play: Play,
    hand: HandWorker,
    settings: Settings,
    caplog: pytest.LogCaptureFixture,
) -> None:
    intruder.queue("t1", None)
    await until(lambda: "gone" in view.rings("t1"))
    rings = view.redis.xrange(settings.keys.inbox_of("t1"))
    assert view.lease("t1")  # it lapses: not more than one look a lease
    assert [fields["agent"] for _, fields in rings if fields["task"] == "t1"] == [AGENT]
    assert (await play(["say", "good"])).id
    assert view.entries("t1") == []
    assert "stream_lost: task t1" in caplog.text
    hand.settle("t1", AGENT)
    view.redis.delete(arq_keys.retry(arq_keys.job_id(AGENT, "t1")))


MEMBERS: list[str | bytes] = [
    "stray",
    "{other}:t1",
    "{verbs}:",
    "{verbs}:a b",
    "{verbs}:" + "x" * 129,
    b"\xff\xfe",
    b"{verbs}:\xff",
    "",
]


@pytest.mark.usefixtures("works_after")
@pytest.mark.parametrize("member", MEMBERS)
async def test_a_stray_member_of_the_queue_is_removed_and_reported(
    view: View, intruder: Intruder, member: str | bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        intruder.enlist(member)
        await until(lambda: view.redis.zcard(arq_keys.queue(AGENT)) == 0)
        await until(lambda: "malformed_job" in caplog.text)


@pytest.mark.usefixtures("works_after")
async def test_garbage_on_the_wake_list_is_passed_over(view: View, settings: Settings) -> None:
    wake = settings.keys.wake(AGENT)
    garbage = ["stray", b"\xff\xfe", "", "{other}:t1", "{verbs}:a b", "{verbs}:never-queued"]
    for _ in range(3):
        view.redis.rpush(wake, *garbage)
    view.redis.expire(wake, 600)
    await until(lambda: view.redis.llen(wake) == 0)


@pytest.mark.usefixtures("works_after")
async def test_a_wake_list_that_is_no_list_does_not_stop_the_worker(
    view: View, intruder: Intruder, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    wake = settings.keys.wake(AGENT)
    view.redis.set(wake, "no list", px=60_000)
    await until(lambda: "WRONGTYPE" in caplog.text)
    view.redis.delete(wake)


async def test_a_task_that_was_claimed_too_often_is_unstartable(
    view: View, intruder: Intruder, agent: Agent, start_worker: StartWorker, gates: Gates
) -> None:
    intruder.stream("t1", SUBMISSION)
    view.redis.set(arq_keys.retry(arq_keys.job_id(AGENT, "t1")), 23, px=600_000)
    intruder.queue("t1", stock_job())
    await start_worker(agent)
    await until(lambda: not view.queued())
    final = view.final("t1")
    assert (final["error"], final["reason"]) == ("unstartable", "the job was claimed 24 times")
    assert gates.contexts == []


def _raw_final(view: View, task_id: str) -> dict[bytes, bytes]:
    """Fields of the last entry as bytes: entries before it may not be text."""
    address = view.redis.connection_pool.connection_kwargs
    with redis.Redis(host=address["host"], port=address["port"]) as raw:
        entries: Any = raw.xrevrange(view.keys.events(task_id), count=1)
        return cast(dict[bytes, bytes], entries[0][1])
