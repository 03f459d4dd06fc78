"""What a skill counted with `context.usage`, as OpenAI's clients expect usage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

_INPUT = ("input_tokens", "prompt_tokens")
_OUTPUT = ("output_tokens", "completion_tokens")


class Counts(NamedTuple):
    """Tokens of one run."""

    read: int
    written: int
    total: int
    cached: int
    cache_written: int
    reasoning: int


def counts_of(usage: Mapping[str, Any] | None) -> Counts | None:
    """The tokens that a skill counted, under OpenAI's names, old or new; None if it counted neither input nor output."""
    usage = usage or {}
    read, written = _first(usage, *_INPUT), _first(usage, *_OUTPUT)
    if read is None and written is None:
        return None
    total = _first(usage, "total_tokens")
    return Counts(
        read or 0,
        written or 0,
        (read or 0) + (written or 0) if total is None else total,
        _first(usage, "cached_tokens", "cache_read_tokens") or 0,
        _first(usage, "cache_write_tokens") or 0,
        _first(usage, "reasoning_tokens") or 0,
    )


def completion_usage(usage: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Usage of a chat completion."""
    counts = counts_of(usage)
    if counts is None:
        return None
    return {"prompt_tokens": counts.read, "completion_tokens": counts.written, "total_tokens": counts.total}


def response_usage(usage: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Usage of a response, whose details are required: 0 where the skill did not count them."""
    counts = counts_of(usage)
    if counts is None:
        return None
    return {
        "input_tokens": counts.read,
        "input_tokens_details": {"cached_tokens": counts.cached, "cache_write_tokens": counts.cache_written},
        "output_tokens": counts.written,
        "output_tokens_details": {"reasoning_tokens": counts.reasoning},
        "total_tokens": counts.total,
    }


def _first(usage: Mapping[str, Any], *names: str) -> int | None:
    found = (usage[name] for name in names if isinstance(usage.get(name), int | float))
    return next((int(count) for count in found), None)
