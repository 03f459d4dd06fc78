"""A TCP proxy on loopback that loses what a network may lose."""

from __future__ import annotations

import asyncio

from .loopback_port import PIECE_BYTES, LoopbackPort


class CuttingProxy(LoopbackPort):
    """Responsible for the wire between a client and a server on `port`: may cut it, delay it, or swallow answers.

    `cut_up_after` and `cut_down_after` are how many bytes more go to the server, or come back, before the connection
    is dropped: once for the next connection that gets so far. `swallows` drops answers, `delay_s` holds each piece back
    in both directions. `connections` counts those accepted so far, `drops` those that were cut, `down_bytes` what
    servers answered.
    """

    def __init__(self, port: int) -> None:
        super().__init__()
        self.cut_up_after: int | None = None
        self.cut_down_after: int | None = None
        self.swallows = False
        self.delay_s = 0.0
        self.connections = 0
        self.drops = 0
        self.down_bytes = 0
        self._target = port
        self._open: set[_Wire] = set()

    def __repr__(self) -> str:
        return f"<CuttingProxy open={len(self._open)} connections={self.connections} drops={self.drops}>"

    def drop(self) -> None:
        """Drops all connections."""
        for wire in list(self._open):
            self._close(wire)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.close()  # as a server that is away would refuse
            return
        wire = _Wire(writer, there_writer)
        self._open.add(wire)
        self._spawn(self._up(wire, reader))
        self._spawn(self._down(wire, there_reader))

    async def _up(self, wire: _Wire, reader: asyncio.StreamReader) -> None:
        while data := await self._read(reader):
            passed, self.cut_up_after, is_cut = _within(data, self.cut_up_after)
            await self._pass(wire, wire.there, passed, is_cut)
        self._close(wire)

    async def _down(self, wire: _Wire, reader: asyncio.StreamReader) -> None:
        while data := await self._read(reader):
            self.down_bytes += len(data)
            if not self.swallows:
                passed, self.cut_down_after, is_cut = _within(data, self.cut_down_after)
                await self._pass(wire, wire.here, passed, is_cut)
        self._close(wire)

    async def _read(self, reader: asyncio.StreamReader) -> bytes:
        try:
            data = await reader.read(PIECE_BYTES)
        except OSError:
            return b""
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        return data

    async def _pass(self, wire: _Wire, writer: asyncio.StreamWriter, data: bytes, is_cut: bool) -> None:
        try:
            if not writer.is_closing():
                writer.write(data)
                await writer.drain()
        except OSError:
            is_cut = True
        if is_cut:
            self.drops += 1
            self._close(wire)

    def _close(self, wire: _Wire) -> None:
        self._open.discard(wire)
        wire.here.close()
        wire.there.close()


class _Wire:
    """The two ends of one proxied connection."""

    def __init__(self, here: asyncio.StreamWriter, there: asyncio.StreamWriter) -> None:
        self.here, self.there = here, there


def _within(data: bytes, budget: int | None) -> tuple[bytes, int | None, bool]:
    """What may pass of `data`, what is left of the budget, and whether the connection is cut now."""
    if budget is None:
        return data, None, False
    if len(data) < budget:
        return data, budget - len(data), False
    return data[:budget], None, True
