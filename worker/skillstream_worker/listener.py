"""Role: hears of cancellations at once; the cancel key is what counts (rule P9)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from skillstream.connection import Connection, connect
from skillstream.resp import Reply
from skillstream_schemas.errors import BrokerRefused, BrokerUnavailable

from .attempt import Attempt
from .broker import WorkerBroker
from .renewer import Renewer

log = logging.getLogger(__name__)
_PAUSE_S = 0.5


class Listener:
    """Responsible for the control channel: a notice about a task that runs here makes us look at its cancel key."""

    def __init__(self, broker: WorkerBroker, renewer: Renewer, running: Mapping[str, Attempt]) -> None:
        self._broker, self._renewer, self._running = broker, renewer, running
        self._channel = broker.keys.control
        self._heard = asyncio.Event()
        self._connection: Connection | None = None

    async def run(self) -> None:
        """Listens until it is cancelled; after a broken connection all running tasks are looked at."""
        try:
            while True:
                try:
                    if self._connection is None or not self._connection.is_open:
                        await self._subscribe()
                    await self._heard.wait()
                    self._heard.clear()
                    await self._renewer.look_for_cancels()
                except (BrokerUnavailable, BrokerRefused) as error:
                    log.debug("listening for cancellations: %s", error)
                    await asyncio.sleep(_PAUSE_S)
        finally:
            if self._connection is not None:
                self._connection.close()

    async def _subscribe(self) -> None:
        settings = self._broker.settings
        connection = await connect(settings, protocol=3, on_push=self._pushed)
        connection.on_closed = self._heard.set
        self._connection = connection
        # RESP3 answers a subscription with a push, so that no answer is awaited
        connection.send_only("SUBSCRIBE", self._channel)
        self._heard.set()

    def _pushed(self, message: Sequence[Reply]) -> None:
        if len(message) == 3 and message[0] == b"message" and message[2].decode(errors="replace") in self._running:
            self._heard.set()
