"""The worker and the router of one `dev`, and the broker under them, as one command."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Mapping, Sequence

from skillstream_schemas.errors import BrokerUnavailable, MissingExtra

from .embedded import EmbeddedValkey
from .exits import Exit
from .keeper import how_ended
from .output import go_silent, write
from .process import when_told

_ROUTER_S = 20.0
_HAND_BACK_S = 20.0
_WITHOUT_BROKER_S = 4.0
_LAST_LINES_S = 2.0
_CHUNK_BYTES = 64 * 1024
_LINE_BYTES = 4000


class Together:
    """Responsible for a worker and a router: relays their output, and stops both when told to, or when one of them ends.

    Stop order: the worker first, within `grace_s` and what it takes to hand tasks back; then the router, so that the
    finals of the grace period are in its database. A second signal is passed on to the worker, which obeys it. Where one of
    them has died, there is no grace period. Where the embedded `broker` has, nothing can be handed back or recorded, and another
    program's broker may come to its address: they get `_WITHOUT_BROKER_S`, both at once.
    """

    def __init__(
        self, worker: Sequence[str], router: Sequence[str], env: Mapping[str, str], grace_s: float, broker: EmbeddedValkey | None
    ) -> None:
        self._commands = {"worker": worker, "router": router}
        self._bounds_s = {"worker": grace_s + _HAND_BACK_S, "router": _ROUTER_S}
        self._env = env
        self._broker = broker
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._stop = asyncio.Event()

    async def run(self) -> Exit:
        """Runs until a signal comes or one of them ends; a wrong call or a broker that is away keeps its exit code."""
        when_told(self._told)
        for name, arguments in self._commands.items():
            self._processes[name] = await _start(arguments, self._env)
        printing = [asyncio.create_task(self._print(name, process)) for name, process in self._processes.items()]
        ends: list[asyncio.Task[object]] = [asyncio.create_task(process.wait()) for process in self._processes.values()]
        broker = asyncio.create_task(self._until_broker_ends())
        told = asyncio.create_task(self._stop.wait())
        await asyncio.wait([told, broker, *ends], return_when=asyncio.FIRST_COMPLETED)
        is_told = self._stop.is_set()
        code = Exit.OK if is_told or broker.done() else self._report_ended()
        self._stop.set()
        stopping = asyncio.create_task(self._stop_in_order(at_once=not is_told))
        await asyncio.wait([stopping, broker], return_when=asyncio.FIRST_COMPLETED)
        if broker.done():
            stopping.cancel()
            self._report_broker(broker.result())
            code = Exit.UNREACHABLE
            await asyncio.gather(*(_end(process, _WITHOUT_BROKER_S, at_once=True) for process in self._processes.values()))
        # bounded: what a skill has started may hold the output of its worker open
        await asyncio.wait(printing, timeout=_LAST_LINES_S)
        for waiting in (told, broker, *printing):
            waiting.cancel()
        return code

    def _told(self) -> None:
        worker = self._processes.get("worker")
        if self._stop.is_set() and worker is not None and worker.returncode is None:
            worker.send_signal(signal.SIGTERM)
        self._stop.set()

    async def _until_broker_ends(self) -> list[str]:
        if self._broker is None:
            await asyncio.Event().wait()
            return []
        return await self._broker.ended()

    async def _stop_in_order(self, *, at_once: bool) -> None:
        for name, process in self._processes.items():
            await _end(process, self._bounds_s[name], at_once=at_once)

    def _report_ended(self) -> Exit:
        codes = [(name, process.returncode) for name, process in self._processes.items() if process.returncode is not None]
        for name, code in codes:
            self._say(f"{name} {how_ended(code)} by itself; all is stopped")
        kept = [Exit(code) for _, code in codes if code in (Exit.USAGE, Exit.UNREACHABLE)]
        return kept[0] if kept else Exit.FAILED

    def _report_broker(self, how: Sequence[str]) -> None:
        assert self._broker is not None
        for line in how[1:]:
            self._say(f"broker   {line}")
        self._say(str(BrokerUnavailable(f"the broker {how[0]}; all is stopped", hint=f"its log is {self._broker.log_path}")))

    async def _print(self, name: str, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        line = b""
        # by chunks: a line may be longer than a stream reader takes, and a process whose output nobody reads stands still
        while chunk := await process.stdout.read(_CHUNK_BYTES):
            *lines, line = (line + chunk).split(b"\n")
            for whole in lines:
                self._say(f"{name:<8} {_shown(whole)}")
            line = line[:_CHUNK_BYTES]
        if line:
            self._say(f"{name:<8} {_shown(line)}")

    def _say(self, line: str) -> None:
        try:
            write(line)
        except BrokenPipeError:  # as for any filter: who reads no more wants no more
            go_silent()
            self._stop.set()


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


def _shown(line: bytes) -> str:
    return line[:_LINE_BYTES].decode(errors="replace").rstrip() + (" …" if len(line) > _LINE_BYTES else "")


async def _end(process: asyncio.subprocess.Process, bound_s: float, *, at_once: bool = False) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    if at_once:
        process.send_signal(signal.SIGINT)  # the second one, which has a worker wait for nothing
    try:
        async with asyncio.timeout(bound_s):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
