"""Streams that cannot be read, or that are gone, end as their coded failure; the worker goes on (guarantee G13)."""

from __future__ import annotations

from typing import Any, cast

import pytest
import redis

from skillstream_schemas import keys as arq_keys
from skillstream_schemas.settings import Settings
from skillstream_worker import Worker
from tests.client.bounds import until
from tests.client.hand_worker import HandWorker
from tests.support.verbs import AGENT, Gates

from .conftest import Play
from .intruder import SUBMISSION, Intruder, stock_job
from .view import View

pytestmark = pytest.mark.guarantee("G13")
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


def _raw_final(view: View, task_id: str) -> dict[bytes, bytes]:
    """Fields of the last entry as bytes: entries before it may not be text."""
    address = view.redis.connection_pool.connection_kwargs
    with redis.Redis(host=address["host"], port=address["port"]) as raw:
        entries: Any = raw.xrevrange(view.keys.events(task_id), count=1)
        return cast(dict[bytes, bytes], entries[0][1])
