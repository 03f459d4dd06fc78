"""Inputs that are made to cost a decoder time or memory cost it little."""

from __future__ import annotations

import struct
import time
import tracemalloc
from collections.abc import Callable

import pytest

from skillstream_schemas.errors import MalformedEntry, MalformedJob
from skillstream_schemas.event import event_from_fields
from skillstream_schemas.ids import EventId
from skillstream_schemas.job import MAX_JOB_BYTES, read_job
from skillstream_schemas.limits import MAX_BYTES, MIB
from skillstream_schemas.request import TaskRequest

from .decoding import job_of, only

pytestmark = pytest.mark.guarantee("G13")


def measured(decode: Callable[[], object]) -> tuple[float, int]:
    """Seconds that a decoder takes, and bytes that it holds at most beside its input."""
    started_s = time.process_time()
    decode()
    taken_s = time.process_time() - started_s
    tracemalloc.start()
    try:
        decode()
        return taken_s, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def many(item: bytes, size_bytes: int) -> bytes:
    count = size_bytes // len(item)
    return job_of(b"\xdd" + struct.pack("!I", count) + item * count)


def chunk(data: str) -> Callable[[], object]:
    return lambda: only(
        MalformedEntry, lambda: event_from_fields(EventId(1, 2), {"type": "chunk", "mode": "delta", "at": "1", "data": data})
    )


def job(data: bytes) -> Callable[[], object]:
    return lambda: only(MalformedJob, lambda: read_job(data))


def history(text: str) -> Callable[[], object]:
    fields = {"agent": "a", "skill": "s", "message": "m", "history": text}
    return lambda: only(MalformedEntry, lambda: TaskRequest.from_fields(fields))


def fields(count: int, event_id: EventId) -> Callable[[], object]:
    surplus = {f"f{number}": "x" for number in range(count)}
    return lambda: only(MalformedEntry, lambda: event_from_fields(event_id, surplus))


COSTLY: dict[str, Callable[[], Callable[[], object]]] = {
    "a job of empty maps": lambda: job(many(b"\x80", MAX_JOB_BYTES - 100)),
    "a job of empty lists": lambda: job(many(b"\x90", MAX_JOB_BYTES - 100)),
    "a job of extensions": lambda: job(many(b"\xd4\x05\x00", MIB)),
    "a job of bytes": lambda: job(many(b"\xc4\x02ab", MIB)),
    "a job of short texts": lambda: job(many(b"\xa2ab", MIB)),
    "a deep job": lambda: job(job_of(b"\x91" * 1000 + b"\xc0")),
    "JSON of empty lists": lambda: chunk("[" + "[]," * (5 * MIB) + "1]"),
    "JSON of strings with brackets": lambda: chunk("[" + '"[",' * (3 * MIB) + "1]"),
    "JSON of closing brackets": lambda: chunk("[" * 201 + "]" * (15 * MIB)),
    "JSON of brackets": lambda: chunk("[" * (MAX_BYTES - 1)),
    "JSON of nested maps": lambda: chunk('{"":' * MIB),
    "JSON with a quote left open": lambda: chunk('["' + '\\"' * (MIB)),
    "JSON of numbers": lambda: chunk("[" + "1," * (MIB // 2) + "1]"),
    "JSON over the limit": lambda: chunk(" " * (MAX_BYTES + 1)),
    "an integer of a million digits": lambda: chunk("9" * MIB),
    "a history of numbers": lambda: history("[" + "1," * (MIB // 2) + "1]"),
    "a million fields": lambda: fields(1_000_000, EventId(1, 2)),
    "a submission of a million fields": lambda: fields(1_000_000, EventId(0, 1)),
}


@pytest.mark.parametrize("what", COSTLY)
def test_what_is_made_to_cost_costs_little(what: str) -> None:
    taken_s, held_bytes = measured(COSTLY[what]())
    assert taken_s < 5
    assert held_bytes < 128 * MIB
