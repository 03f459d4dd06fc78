"""Bad jobs end as their coded failure, bad members of the queue are removed; the worker goes on (guarantee G13)."""

from __future__ import annotations

import logging
from typing import Any

import msgpack
import pytest

from skillstream_schemas import keys as arq_keys
from skillstream_schemas.job import pack
from skillstream_schemas.limits import Limits
from skillstream_schemas.settings import Settings
from skillstream_worker import Agent, Worker
from tests.client.bounds import until
from tests.support.verbs import AGENT, Gates

from .conftest import StartWorker
from .intruder import GOOD, SUBMISSION, Intruder, stock_job
from .view import View

pytestmark = pytest.mark.guarantee("G13")
REQUEST = {"skill": "stream", "message": GOOD}
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
