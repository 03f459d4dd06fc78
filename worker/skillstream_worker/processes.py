"""Several worker processes under one command."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from skillstream.cli.exits import Exit
from skillstream.cli.output import note
from skillstream.cli.process import STOP_SIGNALS

_SETTLED_S = 10.0


class Processes:
    """Responsible for `count` processes of one command: passes signals on, and starts one again that breaks down.

    One that breaks within its first `settled_s` seconds would break again: it stops all, and its exit code is ours where it
    says that the call is wrong or the broker away, FAILED otherwise. One that ends with 0 was told to, and stays away.
    Their standard input is a pipe that nothing is written to: it closes when this process dies.
    """

    def __init__(self, command: Sequence[str], count: int, env: Mapping[str, str], *, settled_s: float = _SETTLED_S) -> None:
        self._command, self._count, self._env, self._settled_s = command, count, env, settled_s
        self._running: set[asyncio.subprocess.Process] = set()
        self._stopping = asyncio.Event()
        self._broken: Exit | None = None

    async def run(self) -> int:
        """Runs until all have ended; returns the exit code."""
        loop = asyncio.get_running_loop()
        for signum in STOP_SIGNALS:
            loop.add_signal_handler(signum, self._told)
        codes = await asyncio.gather(*(self._keep() for _ in range(self._count)))
        return int(self._broken if self._broken is not None else max(codes))

    async def _keep(self) -> int:
        """Keeps one of them running; its last exit code."""
        loop = asyncio.get_running_loop()
        while not self._stopping.is_set():
            process = await asyncio.create_subprocess_exec(
                *self._command, env=self._env, start_new_session=True, stdin=asyncio.subprocess.PIPE
            )
            self._running.add(process)
            started_s = loop.time()
            code = await process.wait()
            self._running.discard(process)
            if code == 0 or (self._stopping.is_set() and -code in STOP_SIGNALS):  # told before it could listen
                return 0
            if self._stopping.is_set():
                return abs(code)
            if loop.time() - started_s < self._settled_s:
                self._broken = Exit(code) if code in (Exit.USAGE, Exit.UNREACHABLE) else Exit.FAILED
                note(f"worker process {process.pid} ended by itself with exit code {code} at its start; all are stopped")
                self._told()
                return abs(code)
            note(f"worker process {process.pid} ended by itself with exit code {code}; another one is started")
        return 0

    def _told(self) -> None:
        self._stopping.set()
        for process in self._running:
            if process.returncode is None:
                process.terminate()  # whichever came: one that is still importing ends without a word
