"""Jobs have arq's own layout, both ways; bytes that have not never do more than raise MalformedJob."""

from __future__ import annotations

import struct
from typing import Any

import msgpack
import pytest
from arq.jobs import deserialize_job_raw, deserialize_result, serialize_job, serialize_result
from hypothesis import example, given
from hypothesis import strategies as st

from skillstream_schemas.errors import MalformedJob
from skillstream_schemas.job import MAX_JOB_BYTES, Job, pack, pack_result, read_job, stub, unpack

from .strategies import json_values, texts

times = st.integers(0, 2**53)
requests = st.dictionaries(texts, json_values, max_size=4)


@given(times)
def test_arq_reads_our_stub(enqueued_ms: int) -> None:
    function, args, kwargs, job_try, enqueue_time_ms = deserialize_job_raw(stub(enqueued_ms), deserializer=unpack)
    assert (function, list(args), kwargs, enqueue_time_ms) == ("run_skill", [], {}, enqueued_ms)
    assert str(job_try) == "None"  # arq types it as an int


@given(times)
def test_we_read_our_stub(enqueued_ms: int) -> None:
    assert read_job(stub(enqueued_ms)) == Job("run_skill", None, enqueued_ms)


@given(requests, times, st.none() | st.integers(0, 9))
def test_we_read_what_a_stock_client_writes(request: dict[str, Any], enqueued_ms: int, job_try: int | None) -> None:
    data = serialize_job("run_skill", (request,), {}, job_try, enqueued_ms, serializer=pack)
    job = read_job(data)
    assert job == Job("run_skill", request, enqueued_ms)
    assert job.is_stock


@given(requests)
def test_arq_reads_our_result(request: dict[str, Any]) -> None:
    job = Job("run_skill", request, 5)
    data = pack_result(job, "a", "t", attempt=2, final={"state": "completed"}, started_ms=6, finished_ms=7)
    read = deserialize_result(data, deserializer=unpack)
    assert (read.function, list(read.args), read.success, read.job_try, read.result) == (
        "run_skill", [request], True, 2, {"state": "completed"}
    )  # fmt: skip
    assert (read.queue_name, read.job_id) == ("arq:queue:{a}", "{a}:t")


def test_a_result_has_the_fields_that_arq_writes() -> None:
    theirs = serialize_result("run_skill", (), {}, 1, 5, True, {}, 6, 7, "ref", "arq:queue:{a}", "{a}:t", serializer=pack)
    ours = pack_result(Job("run_skill", None, 5), "a", "t", attempt=1, final={}, started_ms=6, finished_ms=7)
    assert theirs is not None
    assert unpack(ours) == unpack(theirs)


def job_bytes(**changes: Any) -> bytes:
    fields: dict[str, Any] = {"t": None, "f": "run_skill", "a": [], "k": {}, "et": 1}
    return bytes(msgpack.packb({key: value for key, value in {**fields, **changes}.items() if value is not ...}))


@pytest.mark.parametrize(
    "change",
    [
        {"f": None}, {"f": 1}, {"f": ...}, {"a": None}, {"a": {}}, {"a": ...}, {"k": []}, {"k": ...}, {"et": ...}, {"et": "now"},
        {"et": None}, {"et": 1.5}, {"et": True}, {"k": {"x": 1}}, {"a": [1]}, {"a": ["text"]}, {"a": [{}, {}]}, {"a": [None]},
        {"a": [{1: "x"}]},
    ],
)  # fmt: skip
@pytest.mark.guarantee("G13")
def test_another_layout_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(MalformedJob):
        read_job(job_bytes(**change))


def test_jobs_of_other_functions_keep_their_name() -> None:
    assert read_job(job_bytes(f="resize")).function == "resize"


HOSTILE = {
    "empty": b"",
    "text": b"not msgpack at all",
    "pickle": b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00}\x94.",
    "nested lists": b"\x91" * 100_000 + b"\xc0",
    "nested maps": b"\x81\xa1x" * 50_000 + b"\xc0",
    "list of four thousand million": b"\xdd\xff\xff\xff\xff",
    "map of four thousand million": b"\xdf\xff\xff\xff\xff",
    "text of four gigabytes": b"\xdb\xff\xff\xff\xff",
    "bytes of four gigabytes": b"\xc6\xff\xff\xff\xff",
    "text that is not UTF-8": b"\x81\xa1f\xa2\xff\xfe",
    "key that is not UTF-8": b"\x81\xa2\xff\xfe\x01",
    "key that is a list": b"\x81\x90\x01",
    "key that is a number": b"\x81\x01\x01",
    "unknown extension": b"\xd4\x05\x00",
    "timestamp out of range": b"\xc7\x0c\xff" + struct.pack("!Iq", 2**32 - 1, 2**62),
    "never used byte": b"\xc1",
    "two jobs": job_bytes() * 2,
    "number": b"\x01",
    "list": b"\x90",
    "nothing": b"\xc0",
}


@pytest.mark.parametrize("what", HOSTILE)
@pytest.mark.guarantee("G13")
def test_hostile_bytes_raise_malformed_job(what: str) -> None:
    with pytest.raises(MalformedJob) as raised:
        read_job(HOSTILE[what])
    assert len(str(raised.value)) < 700


@given(st.integers(0, len(job_bytes(a=[{"agent": "a"}])) - 1))
def test_a_truncated_job_raises_malformed_job(length: int) -> None:
    with pytest.raises(MalformedJob):
        read_job(job_bytes(a=[{"agent": "a"}])[:length])


def test_a_job_over_the_limit_is_not_even_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(msgpack, "unpackb", lambda *a, **k: pytest.fail("parsed"))
    with pytest.raises(MalformedJob, match="limit"):
        read_job(b"\xc0" * (MAX_JOB_BYTES + 1))


@given(st.binary(max_size=200))
@example(b"\x85\xa1t\xc0\xa1f\xa1x\xa1a\x91\xd4\x05\x00\xa1k\x80\xa2et\x01")
@pytest.mark.guarantee("G13")
def test_random_bytes_only_ever_raise_malformed_job(data: bytes) -> None:
    try:
        job = read_job(data)
    except MalformedJob:
        return
    assert isinstance(job.function, str)


@given(st.data())
def test_a_job_with_flipped_bytes_only_ever_raises_malformed_job(data: st.DataObject) -> None:
    whole = bytearray(job_bytes(a=[{"agent": "a", "metadata": {"x": [1, 2.5, None]}}]))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        read_job(bytes(whole))
    except MalformedJob:
        pass
