"""The process between an owner and its Valkey: it ends the server with its owner, and tells how one ended by itself.

Run as `python -m skillstream.cli.keeper BINARY DIRECTORY PORT...`, it prints the server's URL once that takes connections,
and serves until standard input closes. Where the server ends before that, it prints how, then the last lines of its log.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from skillstream_schemas.errors import InvalidSettings

from .process import when_parent_ends, when_told
from .target import claim_folder, name_owner

LOG_FILE = "valkey.log"
"""What the server writes, in its data directory."""
_OPTIONS = ("--bind", "127.0.0.1", "--protected-mode", "yes", "--appendonly", "yes", "--save", "", "--logfile", "")
_READY, _IN_USE = b"Ready to accept connections", b"Address already in use"
_READY_S = 60.0
_LOOK_S = 0.02
_STOP_S = 5.0
_FREE_PORTS = 20
_LOG_BYTES, _LOG_LINES = 4096, 5


class Keeper:
    """Responsible for one server process: starts, watches and ends it.

    It listens at the first of `ports` that nobody has; 0 stands for any that is free. The server itself says that a port is
    taken: whoever looks before may be too early.
    """

    def __init__(self, binary: Path, directory: Path, ports: Sequence[int]) -> None:
        self._binary, self._directory, self._ports = binary, directory, ports
        self._log = directory / LOG_FILE
        self._log_from = 0
        self._left = asyncio.Event()

    async def run(self) -> int:
        """Serves until the owner leaves, or the server ends; the exit code is 0 where it served to the end."""
        when_told(self._left.set)
        when_parent_ends(self._left.set)
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            how = await self._serve(claim_folder(self._directory))
        except (OSError, InvalidSettings) as error:
            self._tell(f"cannot be started: {error.message if isinstance(error, InvalidSettings) else error}")
            return 1
        if self._left.is_set():
            return 0
        lines = (line.strip() for line in self._logged().decode(errors="replace").splitlines())
        self._tell(how, *[line for line in lines if line][-_LOG_LINES:])
        return 1

    async def _serve(self, lock: int) -> str:
        """Serves until the owner leaves, or the server ends; how it ended."""
        how = ""
        for port in self._candidates():
            server = await self._start(port, lock)
            try:
                if await self._is_ready(server):
                    self._tell(f"redis://127.0.0.1:{port}/0")
                    await self._until_end(server)
                    is_final = True
                else:
                    is_final = self._left.is_set() or _IN_USE not in self._logged()
                how = f"was not ready within {_READY_S:g} s" if server.returncode is None else how_ended(server.returncode)
            finally:
                await _end(server)
            if is_final:
                break
        return how

    def _candidates(self) -> Iterator[int]:
        """Ports in the order of trying."""
        for port in self._ports:
            for _ in range(1 if port else _FREE_PORTS):
                yield port or _free_port()

    async def _start(self, port: int, lock: int) -> asyncio.subprocess.Process:
        """Starts the server, which keeps its folder for itself also where keeper and owner are killed before it."""
        with self._log.open("ab") as log:  # no pipe: a server whose output nobody reads stands still
            self._log_from = log.tell()
            server = await asyncio.create_subprocess_exec(
                self._binary, "--port", str(port), "--dir", str(self._directory), *_OPTIONS,
                stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=(lock,),
            )  # fmt: skip
        name_owner(lock, server.pid)
        return server

    async def _is_ready(self, server: asyncio.subprocess.Process) -> bool:
        """Waits until the server has read its data and takes connections; False where it ended or the owner left first."""
        give_up_s = asyncio.get_running_loop().time() + _READY_S
        while server.returncode is None and not self._left.is_set() and asyncio.get_running_loop().time() < give_up_s:
            if _READY in self._logged():  # another server at this port would answer too
                return True
            await asyncio.sleep(_LOOK_S)
        return False

    async def _until_end(self, server: asyncio.subprocess.Process) -> None:
        waiting = [asyncio.create_task(server.wait()), asyncio.create_task(self._left.wait())]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()

    def _tell(self, *lines: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # the owner may have left
            sys.stdout.write("".join(f"{line}\n" for line in lines))
            sys.stdout.flush()

    def _logged(self) -> bytes:
        """The end of what the server has written since its start."""
        with self._log.open("rb") as log:
            size_bytes = log.seek(0, 2)
            log.seek(max(self._log_from, size_bytes - _LOG_BYTES))
            return log.read()


def how_ended(code: int) -> str:
    """An exit code in words."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


async def _end(server: asyncio.subprocess.Process) -> None:
    if server.returncode is not None:
        return
    server.terminate()
    try:
        async with asyncio.timeout(_STOP_S):
            await server.wait()
    except TimeoutError:
        server.kill()
        await server.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    raise SystemExit(asyncio.run(Keeper(Path(sys.argv[1]), Path(sys.argv[2]), [int(port) for port in sys.argv[3:]]).run()))
