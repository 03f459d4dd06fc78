"""A port on loopback whose connections a test has in its hands."""

from __future__ import annotations

import asyncio
import ssl
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self

PIECE_BYTES = 65_536
"""What is read from a connection at once."""


class LoopbackPort(ABC):
    """Responsible for listening on a free port within a block; what becomes of a connection, the subclass says."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._work: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._take_connection, "127.0.0.1", 0, ssl=self._tls)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._server is not None
        self._server.close()
        await self._end()

    @property
    def port(self) -> int:
        """Where it listens."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def url(self) -> str:
        """Where clients of Redis connect."""
        return f"redis://127.0.0.1:{self.port}/0"

    @abstractmethod
    def drop(self) -> None:
        """Drops all connections."""

    @abstractmethod
    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Takes one connection."""

    async def _end(self) -> None:
        """Ends what goes on behind the closed port."""
        while self._work:  # one taken just now opens a connection that is dropped in its turn
            self.drop()
            await asyncio.gather(*self._work, return_exceptions=True)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Has work go on beside, until the port's end at the latest."""
        task = asyncio.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    def _take_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._spawn(self._accept(reader, writer))
