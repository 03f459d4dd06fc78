"""The API keys as requests are checked against them."""

from __future__ import annotations

import asyncio

from skillstream.clock import Clock
from skillstream_router.store import ApiKey, GatewayStore
from skillstream_router.store.api_key import id_of_key

_FRESH_S = 1.0


class KeyRing:
    """Responsible for knowing which API keys are in use; a revoked one is refused a second later at most.

    Errors: DatabaseUnavailable.
    """

    def __init__(self, store: GatewayStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._keys: dict[str, ApiKey] = {}
        self._read_at_s = -_FRESH_S
        self._reading = asyncio.Lock()

    async def is_empty(self) -> bool:
        """True if no key was ever made: a revoked key counts, so that revoking the last one opens nothing."""
        return not await self._fresh()

    async def find(self, key: str) -> ApiKey | None:
        """The key, if it is one and in use."""
        key_id = id_of_key(key)
        known = None if key_id is None else (await self._fresh()).get(key_id)
        return known if known is not None and known.fits(key) else None

    async def in_use(self, key_id: str) -> ApiKey | None:
        """The key of this id, unless it is revoked."""
        known = (await self._fresh()).get(key_id)
        return None if known is None or known.revoked_at is not None else known

    async def _fresh(self) -> dict[str, ApiKey]:
        if self._clock.elapsed_s() - self._read_at_s < _FRESH_S:
            return self._keys
        async with self._reading:  # one of many requests reads for all
            if self._clock.elapsed_s() - self._read_at_s >= _FRESH_S:
                self._keys = {key.id: key for key in await self._store.keys()}
                self._read_at_s = self._clock.elapsed_s()
        return self._keys
