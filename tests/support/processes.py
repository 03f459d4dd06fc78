"""Starts processes of the product and waits for their words, each wait bounded."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
START_S = 30.0
"""A process that imports everything, or ends all that it has begun, takes its time on a busy machine."""


class Process:
    """A `skillstream` command, or another module, in a process of its own; its output is read as it comes."""

    def __init__(self, *arguments: str, env: dict[str, str] | None = None, module: str = "skillstream", cwd: Path = ROOT) -> None:
        self.lines: list[str] = []
        self._fresh: queue.Queue[str | None] = queue.Queue()
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=cwd,
            env={**os.environ, **(env or {})},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code of a process that has ended, None while it runs."""
        return self._process.poll()

    def wait_for(self, words: str, timeout_s: float = START_S) -> str:
        """The next line that has these words in it; fails with all output where none comes in time."""
        give_up = time.monotonic() + timeout_s
        while True:
            try:
                line = self._fresh.get(timeout=max(0.0, give_up - time.monotonic()))
            except queue.Empty:
                line = None
            if line is None:
                raise AssertionError(f"no line with {words!r} within {timeout_s} s:\n" + "\n".join(self.lines))
            if words in line:
                return line

    def send(self, signum: signal.Signals) -> None:
        """Sends a signal."""
        self._process.send_signal(signum)

    def wait(self, timeout_s: float = START_S) -> int:
        """The exit code, once the process has ended."""
        code = self._process.wait(timeout=timeout_s)
        self._reader.join(timeout=10)
        return code

    def kill(self) -> None:
        """Kills the process where it still runs, and closes its output; twice is safe."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._reader.join(timeout=10)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.rstrip())
            self._fresh.put(line.rstrip())
        self._fresh.put(None)


def until(condition: Callable[[], bool], timeout_s: float = START_S) -> None:
    """Comes back once a condition holds that another process brings about; fails after `timeout_s`."""
    give_up = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < give_up, f"not within {timeout_s} s"
        time.sleep(0.01)


def descendants(pid: int) -> list[int]:
    """Process ids of all that a process started, and of what those started."""
    parents = {int(path.name): status[1] for path in Path("/proc").glob("[0-9]*") if (status := _status(int(path.name)))}
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == str(one)]
    return found[1:]


def is_running(pid: int) -> bool:
    """False once a process has ended, also where nobody has asked for its exit code."""
    status = _status(pid)
    return status is not None and status[0] != "Z"


def _status(pid: int) -> list[str] | None:
    """State, parent and so on, as /proc has them; None where there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
