"""How a test has a decoder read what may be anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from skillstream_schemas.errors import SkillstreamError

T = TypeVar("T")


def only(error: type[SkillstreamError], decode: Callable[[], T]) -> T | None:
    """What a decoder reads, None where it raised its coded error; any other exception is a fault."""
    try:
        return decode()
    except error as refused:
        assert len(str(refused)) < 1500, "the error is as large as what it refuses"  # noqa: PT017
        return None


def job_of(value: bytes) -> bytes:
    """A stock client's job whose request holds this msgpack value as its data."""
    return b"\x85\xa1t\xc0\xa1f\xa9run_skill\xa1a\x91\x81\xa4data" + value + b"\xa1k\x80\xa2et\x01"
