"""Role: hears of cancellations, at once by the control channel and at the latest with the next look (rule P9)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from skillstream.connection import Connection
from skillstream.resp import Reply
from skillstream_schemas.errors import BrokerRefused, BrokerUnavailable

from .attempt import Attempt
from .broker import WorkerBroker
from .outcome import StopCause

log = logging.getLogger(__name__)
_LOOKS_PER_LEASE = 3


class Listener:
    """Responsible for stopping attempts whose tasks are canceled: the cancel key counts, the channel only hurries."""

    def __init__(self, broker: WorkerBroker, running: Mapping[str, Attempt]) -> None:
        self._broker, self._running = broker, running
        self._period_s = broker.settings.lease_s / _LOOKS_PER_LEASE
        self._heard = asyncio.Event()
        self._connection: Connection | None = None

    async def run(self) -> None:
        """Listens until it is cancelled."""
        try:
            while True:
                try:
                    if self._connection is None or not self._connection.is_open:
                        await self._subscribe()
                    await self._look()
                except (BrokerUnavailable, BrokerRefused) as error:
                    log.debug("listening for cancellations: %s", error)
                await self._notice()
        finally:
            if self._connection is not None:
                self._connection.close()

    async def _notice(self) -> None:
        try:
            async with asyncio.timeout(self._period_s):
                await self._heard.wait()
        except TimeoutError:
            pass
        self._heard.clear()

    async def _look(self) -> None:
        if not self._running:
            return
        reasons = await self._broker.cancel_reasons(list(self._running))
        for task_id, reason in reasons.items():
            if (attempt := self._running.get(task_id)) is not None:
                attempt.stop(StopCause.CANCELED, reason)

    async def _subscribe(self) -> None:
        connection = await self._broker.pipeline.connect(None, protocol=3, on_push=self._pushed)
        # on RESP3 a subscription is answered with a push, so that no answer is awaited
        connection.send_only("SUBSCRIBE", self._broker.keys.control)
        self._connection = connection

    def _pushed(self, message: Sequence[Reply]) -> None:
        if len(message) == 3 and message[0] == b"message" and message[2].decode(errors="replace") in self._running:
            self._heard.set()
