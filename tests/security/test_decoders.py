"""Whatever comes in, each decoder either reads it or raises its coded error, within bounded time and memory.

`tests/security/fuzz.py` drives the same tests with coverage guidance.
"""

from __future__ import annotations

import json
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar, cast

import msgpack
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from skillstream.broker import Broker
from skillstream.connection import Connection
from skillstream.pipeline import Pipeline
from skillstream.resp import PythonParser
from skillstream_router.broker import RouterBroker
from skillstream_router.projection import Notice, RawEntry, fold, project
from skillstream_schemas import keys as arq_keys
from skillstream_schemas.card import AgentCard
from skillstream_schemas.errors import (
    BrokerUnavailable,
    InvalidName,
    InvalidRequest,
    InvalidSettings,
    MalformedEntry,
    MalformedJob,
)
from skillstream_schemas.event import event_from_fields, request_from_fields
from skillstream_schemas.ids import EventId, check_name
from skillstream_schemas.job import read_job, unpack
from skillstream_schemas.limits import Limits
from skillstream_schemas.request import TaskRequest, read_json
from skillstream_schemas.settings import Settings
from skillstream_worker.broker import ClaimedJob, WorkerBroker
from skillstream_worker.reading import read_claimed
from tests.schemas.strategies import event_ids, events, json_values, names
from tests.support.verbs import Gates, verb_agent

from .decoding import only

T = TypeVar("T")
AGENT = verb_agent(Gates())
pytestmark = pytest.mark.guarantee("G13")
hostile_texts = st.one_of(
    st.text(max_size=80),
    st.text('[]{}",:\\u0123456789.eE+-tfn \ud800', max_size=80),
    st.sampled_from(["NaN", "-Infinity", "1e999", "9" * 5000, "\x00", "0-1", "-1", "true", "status", "chunk", "final", "\ud83d"]),
    st.integers(0, 3000).map(lambda depth: "[" * depth + "]" * depth),
    json_values.map(json.dumps),
)
field_names = st.sampled_from(
    ["type", "at", "state", "v", "text", "data", "mode", "metadata", "usage", "worker", "claim", "strikes", "resume_from",
     "history",
     "handed_back", "progress", "chunks", "error", "reason", "id", "agent", "skill", "message", "max_attempts", "price_micros",
     "on_retry", "context_id", "follows", "payer", "deadline", "traceparent", "request"]
) | st.text(max_size=8)  # fmt: skip
hostile_fields = st.dictionaries(field_names, hostile_texts, max_size=12)
spoiled_fields = st.builds(lambda event, spoil: {**event.to_fields(), **spoil}, events, hostile_fields)
natives = st.recursive(
    json_values | st.binary(max_size=8) | st.floats() | st.integers(-(2**63), 2**64 - 1),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(field_names, inner, max_size=3),
    max_leaves=8,
)
raw = st.binary(max_size=40)
raw_entries = st.tuples(st.builds(lambda e: str(e).encode(), event_ids), st.lists(st.tuples(raw, raw), max_size=4).map(
    lambda pairs: [part for pair in pairs for part in pair]
))  # fmt: skip


def done(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that has nothing to wait for."""
    try:
        work.send(None)
    except StopIteration as stop:
        return cast(T, stop.value)
    raise AssertionError("it waits")


class Answering:
    """A pipeline whose every answer is the test's."""

    def __init__(self, reply: Any) -> None:
        self._reply = reply

    async def call(self, *arguments: Any, step: str = "") -> Any:
        return self._reply

    async def run(self, *arguments: Any) -> Any:
        return self._reply

    async def batch(self, commands: Sequence[Any], step: str) -> Any:
        return self._reply


BrokerT = TypeVar("BrokerT", bound=Broker)


def answering(broker: BrokerT, reply: Any) -> BrokerT:
    broker.pipeline = cast(Pipeline, Answering(reply))
    return broker


@given(event_ids | st.just(EventId(0, 1)), hostile_fields | spoiled_fields)
def test_events(event_id: EventId, fields: dict[str, str]) -> None:
    event = only(MalformedEntry, lambda: event_from_fields(event_id, fields))
    if event is not None:
        event.to_fields()


@given(hostile_fields)
def test_submissions(fields: dict[str, str]) -> None:
    only(MalformedEntry, lambda: request_from_fields({"type": "status", "state": "submitted", "v": "1", **fields}))


@given(st.dictionaries(field_names, natives, max_size=8), st.booleans())
def test_requests(fields: dict[str, Any], complete: bool) -> None:
    whole = {"agent": "a", "skill": "s", "message": "m"} if complete else {}
    request = only(InvalidRequest, lambda: TaskRequest.build({**whole, **fields}, Limits()))
    if request is not None:
        assert TaskRequest.from_fields(request.to_fields()).same_order(request)


@given(hostile_texts)
def test_json(text: str) -> None:
    only(MalformedEntry, lambda: read_json("data", text))


@given(hostile_texts)
def test_ids(text: str) -> None:
    only(InvalidName, lambda: EventId.parse(text))
    only(InvalidName, lambda: check_name(text, "the task id"))


@given(st.binary(max_size=300))
@example(b"\xdd\xff\xff\xff\xff")
def test_jobs(data: bytes) -> None:
    only(MalformedJob, lambda: read_job(data))
    only(MalformedJob, lambda: unpack(data))
    read_claimed(AGENT, ClaimedJob("t", 1, 1, data), Limits())


@given(st.dictionaries(field_names, natives, max_size=6))
@example({"skill": [[[]]]})
def test_requests_of_stock_clients(request: dict[str, Any]) -> None:
    data = msgpack.packb({"t": None, "f": "run_skill", "a": [request], "k": {}, "et": 1})
    reading = read_claimed(AGENT, ClaimedJob("t", 1, 1, data), Limits())
    assert reading.request is not None
    reading.request.to_fields()


@given(st.dictionaries(st.sampled_from(
    [f"SKILLSTREAM_{name.upper()}" for name in Settings.model_fields] + ["SKILLSTREAM_LIMITS_EVENT_BYTES"]
), hostile_texts | st.sampled_from(["inf", "nan", "1e308", "-0", "1", "redis://", "redis://[", "a://b"])))  # fmt: skip
@example({"SKILLSTREAM_STREAM_TTL_S": "1e308"})
def test_settings(env: dict[str, str]) -> None:
    settings = only(InvalidSettings, lambda: Settings.from_env(env))
    if settings is not None:
        for name, value in settings:
            assert not name.endswith("_s") or 0 <= int(value * 1000) < 10**12


@given(st.binary(max_size=200) | hostile_texts.map(lambda text: text.encode(errors="replace")))
def test_cards(data: bytes) -> None:
    only(MalformedEntry, lambda: AgentCard.from_json(data))
    assert done(answering(Broker(Settings()), [b"a", data]).cards()).keys() <= {"a"}


@given(st.lists(st.binary(max_size=100) | hostile_texts.map(lambda text: text.encode(errors="replace")), max_size=3))
def test_messages_of_a_context(data: list[bytes]) -> None:
    assert len(done(answering(Broker(Settings()), data).context_messages("c"))) <= len(data)


@given(st.lists(raw_entries, max_size=3))
def test_entries(entries: list[tuple[bytes, list[bytes]]]) -> None:
    only(MalformedEntry, lambda: done(answering(Broker(Settings()), entries).read("t", EventId(0, 0))))


@given(st.lists(raw | names.map(lambda name: arq_keys.job_id("a", name).encode()), max_size=6))
def test_wake_tokens(members: list[bytes]) -> None:
    claimed = done(answering(WorkerBroker(Settings(), "w"), [[], members, b"", members]).claim("a", [], 1))
    assert all(check_name(task_id, "the task id") for task_id in claimed.further)


@given(st.binary(max_size=30) | st.just(b"9" * 5000))
def test_claims_in_openings(claim: bytes) -> None:
    opening = [[b"1-1", [b"type", b"status", b"claim", claim]]]
    top = done(answering(WorkerBroker(Settings(), "w"), [opening, opening]).look("t", 1))
    assert top.id == EventId(1, 1)
    assert top.claim is None or len(claim) <= 20


ring_ids = st.integers(0, 2**64 - 1).map(lambda at: b"%d-%d" % (at, at))
ring_names = st.sampled_from([b"task", b"kind", b"agent"]) | raw
ring_values = st.sampled_from([b"t", b"opened", b"gone", b"cancel"]) | raw
ring_fields = st.lists(st.tuples(ring_names, ring_values), max_size=4).map(
    lambda pairs: [part for pair in pairs for part in pair]
)


@given(st.lists(st.tuples(ring_ids, st.none() | ring_fields), max_size=4))
def test_rings(entries: list[tuple[bytes, list[bytes] | None]]) -> None:
    settings = Settings(shards=1)
    rings = done(answering(RouterBroker(settings, "r"), [[b"0-0", entries, []]]).take_over(1, 10))
    assert len(rings) == len(entries)
    for notice in fold(rings).values():
        check_name(notice.task_id, "the task id")
        assert (notice.opened_at or 0) < 2**63
        assert (notice.cancel_requested_at or 0) < 2**63


@given(raw_entries, raw_entries, hostile_fields | spoiled_fields)
def test_projections(first: tuple[bytes, list[bytes]], top: tuple[bytes, list[bytes]], fields: dict[str, str]) -> None:
    found = done(answering(RouterBroker(Settings(), "r"), [[first], [top]]).fetch(["t"]))
    assert found[0].first is not None
    assert found[0].top is not None
    project(Notice("t"), found[0].first, found[0].top)
    encoded = [part.encode(errors="surrogatepass") for field in fields.items() for part in field]
    for entry_id in ("0-1", "1-2"):
        project(Notice("t"), RawEntry("0-1", encoded), RawEntry(entry_id, encoded))


class Deaf:
    """A transport that takes everything and says nothing."""

    def write(self, data: bytes) -> None:
        pass

    def abort(self) -> None:
        pass


resp_kinds = [
    b"*",
    b"$",
    b"+",
    b"-ERR ",
    b":",
    b">",
    b"%",
    b"~",
    b"_",
    b"#t",
    b",",
    b"(",
    b"=",
    b"\r\n",
    b"-1",
    b"0",
    b"2",
    b"9" * 12,
]
resp_texts = st.lists(st.sampled_from(resp_kinds) | st.binary(max_size=6), max_size=30).map(b"".join)


@given(resp_texts)
def test_answers_of_a_server(data: bytes) -> None:
    """A connection breaks at what is no RESP, and its callers hear it; nothing is raised into the event loop."""
    answers: list[Any] = []
    connection = Connection(cast(Any, Deaf()), object(), "redis://played", lambda push: push[0])
    connection.send(b"", 2, answers.append)
    connection.data_received(data)
    connection.close()
    assert len(answers) == 1
    assert isinstance(answers[0], list | BrokerUnavailable)


@given(resp_texts)
def test_answers_without_hiredis(data: bytes) -> None:
    parser = PythonParser()
    parser.feed(data)
    try:
        while parser.gets() is not False:
            pass
    except (ValueError, TypeError):  # the connection closes, as with hiredis
        pass
