"""TLS in front of a server that has none: terminates it and passes plain bytes on."""

from __future__ import annotations

import asyncio

from .certificates import Certificate
from .loopback_port import PIECE_BYTES, LoopbackPort


class TlsFront(LoopbackPort):
    """Responsible for one TLS port on loopback in front of the server on `port`. `connections` counts those made so far."""

    def __init__(self, port: int, certificate: Certificate) -> None:
        super().__init__(certificate.server_context())
        self.connections = 0
        self._target = port
        self._writers: set[asyncio.StreamWriter] = set()

    def __repr__(self) -> str:
        return f"<TlsFront open={len(self._writers) // 2} connections={self.connections}>"

    def drop(self) -> None:
        """Drops all connections in the middle of whatever they say."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers |= {writer, there_writer}
        for source, sink in ((reader, there_writer), (there_reader, writer)):
            self._spawn(self._pump(source, sink))

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(PIECE_BYTES):
                sink.write(data)
                await sink.drain()
        except OSError:
            pass
        finally:
            sink.transport.abort()
            self._writers.discard(sink)
