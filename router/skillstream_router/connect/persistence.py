"""Steps on the broker that have to be done, however long it stays away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from skillstream_schemas.errors import BrokerRefused, BrokerUnavailable

from .backoff import Backoff

log = logging.getLogger(__name__)
T = TypeVar("T")
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 10.0


async def persist(what: str, step: Callable[[], Awaitable[T]]) -> T:
    """Does a step that may be repeated until the broker takes it; other errors than the broker's are raised."""
    backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
    while True:
        try:
            return await step()
        except (BrokerUnavailable, BrokerRefused) as error:
            log.warning("%s waits for the broker: %s", what, error)
            await asyncio.sleep(backoff.next_s())
