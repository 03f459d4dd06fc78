"""How large things may be; bytes are UTF-8 bytes."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

KIB = 1024
MIB = 1024 * KIB

MAX_BYTES = 16 * MIB
"""What no setting may exceed: readers refuse a larger JSON text before they parse it."""
MAX_FIELDS = 64
"""Fields of one entry or request; the contract knows fewer than half as many."""
MAX_DELAY_S = 365 * 86_400
"""What a task may wait until it may start."""
MAX_LABEL_CHARS = 256
"""The name of a skill, a payer, and other words of a request that are no names of keys."""
DEFAULT_ATTEMPTS, MOST_ATTEMPTS = 3, 1000
"""Attempts at a task where its skill does not say how many (the script that opens them has that too), and the most it may say."""


class Limits(BaseModel):
    """Sizes that a worker and a client hold to."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    message_bytes: int = Field(default=MIB, gt=0, le=MAX_BYTES)
    """The message of a request; its metadata, history and data have the same limit, each."""
    event_bytes: int = Field(default=64 * KIB, ge=KIB, le=MAX_BYTES)
    """A status or chunk entry."""
    output_bytes: int = Field(default=16 * MIB, gt=0, le=MAX_BYTES)
    """All text of an attempt; the data of its final likewise."""
    buffer_bytes: int = Field(default=MIB, gt=0)
    """What an attempt may have said without an answer from Redis before its skill waits."""
    worker_buffer_bytes: int = Field(default=64 * MIB, gt=0)
    """The same for all attempts of a worker together: beyond it, an attempt waits that has any text without an answer."""
    flight_bytes: int = Field(default=MIB, ge=64 * KIB)
    """What is written to Redis in one batch, unless one command alone is larger."""


def utf8_length(text: str) -> int:
    """Length of `text` in UTF-8 bytes; raises UnicodeEncodeError for lone surrogates."""
    return len(text) if text.isascii() else len(text.encode())
