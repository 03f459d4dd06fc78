"""Readers that take nothing are let go, and their sockets with them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Protocol, cast

from skillstream.clock import Clock

log = logging.getLogger(__name__)

STALL_S = 60.0
_CLOSING_S = 5.0
_LOOK_S = 2.5


class Connection(Protocol):
    """What can be seen of a connection's writing; `drains` counts how often its reader caught up."""

    transport: asyncio.Transport
    drains: int

    @property
    def is_write_paused(self) -> bool:
        """True while more waits for the reader than should."""


class StallWatch:
    """Responsible for ending connections whose readers take nothing for so long: whatever was written to them is dropped.

    A transport that is closed waits without an end until its reader has taken all; such ones are cut after seconds.
    """

    def __init__(self, connections: Iterable[object], clock: Clock, stall_s: float) -> None:
        self._connections = cast(Iterable[Connection], connections)
        self._clock = clock
        self._stall_s = stall_s
        self._waiting: dict[Connection, tuple[int, int, float]] = {}
        """Bytes that wait for the reader, its drains, and since when nothing changed for the better."""

    async def run(self) -> None:
        """Looks until it is cancelled."""
        while True:
            await asyncio.sleep(min(_LOOK_S, self._stall_s / 4))
            self.look()

    def look(self) -> None:
        """Ends what has stalled by now."""
        now_s, before = self._clock.elapsed_s(), self._waiting
        self._waiting = {}
        for connection in list(self._connections):
            transport = connection.transport
            size, drains = transport.get_write_buffer_size(), connection.drains
            if not size or not (connection.is_write_paused or transport.is_closing()):
                continue
            last_size, last_drains, since_s = before.get(connection, (size, drains, now_s))
            if size < last_size or drains > last_drains:
                since_s = now_s
            if now_s - since_s >= (min(_CLOSING_S, self._stall_s) if transport.is_closing() else self._stall_s):
                log.info("let a reader go: %d bytes wait for it, and it takes nothing", size)
                transport.abort()
            else:
                self._waiting[connection] = (size, drains, since_s)

    def end_all(self) -> None:
        """Ends every connection whose reader has not taken all."""
        for connection in list(self._connections):
            if connection.transport.get_write_buffer_size():
                connection.transport.abort()
