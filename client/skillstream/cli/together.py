"""The worker and the router of one `dev`, under one command."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Mapping, Sequence

from skillstream_schemas.errors import MissingExtra

from .exits import Exit
from .output import write
from .process import when_told

_ROUTER_S = 20.0
_HAND_BACK_S = 20.0
_CHUNK_BYTES = 64 * 1024
_LINE_BYTES = 4000


class Together:
    """Responsible for a worker and a router: relays their output, and stops both when told to or when one ends.

    Stop order: the worker first, within `grace_s` and what it takes to hand tasks back; then the router, so that the
    finals of the grace period are in its database. A second signal is passed on to the worker, which obeys it.
    """

    def __init__(self, worker: Sequence[str], router: Sequence[str], env: Mapping[str, str], grace_s: float) -> None:
        self._commands = {"worker": worker, "router": router}
        self._bounds_s = {"worker": grace_s + _HAND_BACK_S, "router": _ROUTER_S}
        self._env = env
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._stop = asyncio.Event()

    async def run(self) -> Exit:
        """Runs both until a signal comes or one of them ends; a wrong call or a broker that is away keeps its exit code."""
        when_told(self._told)
        for name, arguments in self._commands.items():
            self._processes[name] = await _start(arguments, self._env)
        printing = [asyncio.create_task(_print(name, process)) for name, process in self._processes.items()]
        ends = [asyncio.create_task(process.wait()) for process in self._processes.values()]
        stopping = asyncio.create_task(self._stop.wait())
        await asyncio.wait([stopping, *ends], return_when=asyncio.FIRST_COMPLETED)
        by_itself = {} if self._stop.is_set() else self._ended()
        for name, process in self._processes.items():  # in the order of stopping
            await _end(process, self._bounds_s[name])
        await asyncio.gather(*printing)
        stopping.cancel()
        for name, code in by_itself.items():
            write(f"{name} ended by itself with exit code {code}; all is stopped")
        if not by_itself:
            return Exit.OK
        told = [code for code in by_itself.values() if code in (Exit.USAGE, Exit.UNREACHABLE)]
        return Exit(told[0]) if told else Exit.FAILED

    def _told(self) -> None:
        worker = self._processes.get("worker")
        if self._stop.is_set() and worker is not None and worker.returncode is None:
            worker.send_signal(signal.SIGTERM)
        self._stop.set()

    def _ended(self) -> dict[str, int]:
        codes = {name: process.returncode for name, process in self._processes.items()}
        return {name: code for name, code in codes.items() if code is not None}


async def _start(arguments: Sequence[str], env: Mapping[str, str]) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "skillstream", *arguments, "--until-eof", env=env,
            stdin=asyncio.subprocess.PIPE,  # it closes when this process dies, by which the other one hears of it
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C comes to us alone, and we stop them in order
        )  # fmt: skip
    except OSError as error:
        raise MissingExtra(f"{arguments[0]} cannot be started: {error}") from None


async def _print(name: str, process: asyncio.subprocess.Process) -> None:
    assert process.stdout is not None
    line = b""
    # by chunks: a line may be longer than a stream reader takes, and a process whose output nobody reads stands still
    while chunk := await process.stdout.read(_CHUNK_BYTES):
        *lines, line = (line + chunk).split(b"\n")
        for whole in lines:
            write(f"{name:<8} {_shown(whole)}")
        line = line[:_CHUNK_BYTES]
    if line:
        write(f"{name:<8} {_shown(line)}")


def _shown(line: bytes) -> str:
    return line[:_LINE_BYTES].decode(errors="replace").rstrip() + (" …" if len(line) > _LINE_BYTES else "")


async def _end(process: asyncio.subprocess.Process, bound_s: float) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(bound_s):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
