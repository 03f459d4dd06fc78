"""Which inboxes of a cluster have new rings: each node tells on one connection.

A read that blocks is refused for inboxes of several slots, so nothing blocks: CLIENT TRACKING brings a push for each write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from skillstream.calling import Caller
from skillstream.connection import Connection
from skillstream.pipeline import Pipeline
from skillstream.resp import Reply, ReplyError
from skillstream_schemas.errors import BrokerRefused


class Bells:
    """Responsible for noticing each write to an inbox; all inboxes have the same `prefix`."""

    def __init__(self, caller: Caller, inboxes: Sequence[str], prefix: str, answer_timeout_s: float) -> None:
        self._caller, self._inboxes, self._prefix = caller, tuple(inboxes), prefix
        self._answer_timeout_s = answer_timeout_s
        self._rung: set[str] = set()
        self._heard = asyncio.Event()
        self._lines: dict[Pipeline, Connection] = {}

    def __repr__(self) -> str:
        return f"<Bells lines={len(self._lines)} rung={len(self._rung)}>"

    async def wait(self, timeout_s: float) -> list[str]:
        """Inboxes that may have new rings; all of them where none was heard for `timeout_s`.

        Raises BrokerUnavailable, or BrokerRefused where a node does not tell.
        """
        await self._listen()
        try:
            async with asyncio.timeout(timeout_s):
                await self._heard.wait()
        except TimeoutError:
            return list(self._inboxes)
        self._heard.clear()
        rung, self._rung = self._rung, set()
        return sorted(rung)

    def ring(self, inboxes: Iterable[str]) -> None:
        """Has inboxes read."""
        self._rung.update(inboxes)
        if self._rung:
            self._heard.set()

    def close(self) -> None:
        """Closes the connections."""
        for line in self._lines.values():
            line.close()
        self._lines.clear()

    async def _listen(self) -> None:
        """Has a connection to each node that has inboxes; what was written to those of a new one before is not told."""
        places = {inbox: self._caller.link_of(inbox) for inbox in self._inboxes}
        for link in set(places.values()):
            if link not in self._lines or not self._lines[link].is_open:
                self._lines[link] = await self._line(link)
                self.ring(inbox for inbox, place in places.items() if place is link)

    async def _line(self, link: Pipeline) -> Connection:
        line = await link.connect(protocol=3, on_push=self._pushed)
        try:
            await line.call(*("CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", self._prefix), timeout_s=self._answer_timeout_s)
        except ReplyError as error:
            line.close()
            raise BrokerRefused(f"listen to inboxes: {error}") from None
        return line

    def _pushed(self, message: Sequence[Reply]) -> None:
        if not message or message[0] != b"invalidate":
            return
        names = self._inboxes if message[1] is None else [name.decode(errors="replace") for name in message[1]]
        self.ring(name for name in names if name in self._inboxes)
