"""What tests read of a stream and of a server, from outside."""

from __future__ import annotations

from collections.abc import AsyncIterable

import redis

from skillstream_schemas.event import FollowedEvent, ResetEvent


def places(events: list[FollowedEvent]) -> list[str]:
    """Ids of events; a reset by what it keeps."""
    return [f"reset {event.attempt} keeps {event.keep}" if isinstance(event, ResetEvent) else str(event.id) for event in events]


async def read_into(seen: list[FollowedEvent], source: AsyncIterable[FollowedEvent]) -> None:
    """Keeps what came, also where an error ends it."""
    async for event in source:
        seen.append(event)  # noqa: PERF401 - a comprehension would lose what came before an error


async def first(source: AsyncIterable[FollowedEvent]) -> FollowedEvent:
    """The first that comes."""
    async for event in source:
        return event
    raise AssertionError("nothing came")


def near(ttl_ms: int, expected_ms: int) -> bool:
    """True for a TTL of which at most a minute has gone."""
    return expected_ms - 60_000 < ttl_ms <= expected_ms


def server_ms(outside: redis.Redis) -> float:
    """The server's clock, unix ms."""
    seconds, micros = outside.time()  # type: ignore[misc]
    return float(seconds) * 1000 + float(micros) / 1000
