"""TLS in front of a server that has none: terminates it and passes plain bytes on."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from .certificates import Certificate

_PIECE_BYTES = 65_536


class TlsFront:
    """Responsible for one TLS port on loopback in front of the server on `port`. `connections` counts those made so far."""

    def __init__(self, port: int, certificate: Certificate) -> None:
        self.connections = 0
        self._target = port
        self._context = certificate.server_context()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._pumps: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<TlsFront open={len(self._writers) // 2} connections={self.connections}>"

    @property
    def port(self) -> int:
        """Where it listens."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._context)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._server is not None
        self._server.close()
        self.drop()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    def drop(self) -> None:
        """Drops all connections in the middle of whatever they say."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers |= {writer, there_writer}
        for source, sink in ((reader, there_writer), (there_reader, writer)):
            pump = asyncio.create_task(self._pump(source, sink))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(_PIECE_BYTES):
                sink.write(data)
                await sink.drain()
        except OSError:
            pass
        finally:
            sink.transport.abort()
            self._writers.discard(sink)
