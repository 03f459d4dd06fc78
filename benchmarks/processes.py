"""Processes that a measurement starts: each leads a group of its own, which is ended as a whole by its id."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).parents[1]
_ASK_S = 6.0
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
APART_S = 240.0


class ProcessEnded(RuntimeError):
    """A process ended too early, or with an error; the message has its last lines."""


class ProcessGroups:
    """Responsible for ending every process that it started, and what those started, when its block is left."""

    def __init__(self) -> None:
        self._children: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.end()

    def start(
        self, command: Sequence[str], log: Path, variables: Mapping[str, str] | None = None, *, folder: Path = ROOT
    ) -> subprocess.Popen[str]:
        """Starts a process in a folder, the project's by default; its errors, and its output unless read, go to `log`."""
        with log.open("a") as output:
            # a session of its own: Ctrl-C reaches the benchmark alone, which then ends its processes in order
            child = subprocess.Popen(
                command, cwd=folder, env=_environment(variables or {}), start_new_session=True, text=True,
                stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            )  # fmt: skip
        self._children.append(child)
        return child

    def converse(self, command: Sequence[str], log: Path, variables: Mapping[str, str]) -> subprocess.Popen[str]:
        """Starts a process whose output is read and whose input is written here."""
        with log.open("a") as errors:
            child = subprocess.Popen(
                command, cwd=ROOT, env=_environment(variables), start_new_session=True, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
            )  # fmt: skip
        self._children.append(child)
        return child

    @property
    def pids(self) -> list[int]:
        """Ids of the processes started here that still run."""
        return [child.pid for child in self._children if child.poll() is None]

    def end(self) -> None:
        """Asks all groups to end, and kills what is left after some seconds."""
        for signum, patience_s in ((signal.SIGTERM, _ASK_S), (signal.SIGKILL, _ASK_S)):
            for child in self._children:
                _signal_group(child.pid, signum)
            give_up_s = time.monotonic() + patience_s
            while time.monotonic() < give_up_s and any(child.poll() is None for child in self._children):
                time.sleep(0.02)
        for child in self._children:
            child.wait()
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    pipe.close()
        self._children.clear()


def apart_command(function: Callable[..., Any], loop: str, **arguments: Any) -> list[str]:
    """The command that runs an async function of a benchmark in a process of its own; `loop` is uvloop or asyncio."""
    target = f"{function.__module__}:{function.__name__}"
    return [sys.executable, "-m", "benchmarks.apart", target, loop, json.dumps(arguments)]


def apart(function: Callable[..., Any], *, loop: str = "uvloop", **arguments: Any) -> Any:
    """Runs an async function of a benchmark in a fresh process, and returns what it returns (JSON both ways).

    Workers run on uvloop, so what stands for one does; raises ProcessEnded where it fails.
    """
    # by standard input: thousands of task ids are more than a command line takes
    command = [*apart_command(function, loop)[:-1], "-"]
    child = subprocess.Popen(
        command, cwd=ROOT, env=_environment({}), start_new_session=True, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        output, errors = child.communicate(json.dumps(arguments), timeout=APART_S)
    finally:
        if child.poll() is None:
            _signal_group(child.pid, signal.SIGKILL)
            child.communicate()
    if child.returncode != 0:
        raise ProcessEnded(f"{function.__name__} ended with {child.returncode}: {last_lines(errors)}")
    try:
        return json.loads(output.splitlines()[-1])
    except (IndexError, ValueError):
        raise ProcessEnded(f"{function.__name__} answered {output[-80:]!r}, which is no whole answer") from None


def cpu_seconds(*roots: int) -> float:
    """Processor seconds of these processes, of their descendants, and of children that they waited for; 0 without /proc."""
    parents: dict[int, int] = {}
    used_s: dict[int, float] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(folder.name)
        parents[pid], used_s[pid] = int(fields[1]), sum(map(int, fields[11:15])) / _TICKS_A_SECOND
    wanted = set(roots) & set(parents)
    while more := {pid for pid, parent in parents.items() if parent in wanted} - wanted:
        wanted |= more
    return sum(used_s[pid] for pid in wanted)


def resident_bytes(pid: int | None = None) -> int:
    """Resident memory of a process, this one by default."""
    return int(Path(f"/proc/{pid or os.getpid()}/statm").read_text().split()[1]) * _PAGE_BYTES


def last_lines(text: str, count: int = 15) -> str:
    """The end of an output, for errors."""
    return "\n".join(text.strip().splitlines()[-count:])


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Ours without the settings of the machine's user."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SKILLSTREAM_", "BENCH_"))}
    return {**kept, "SKILLSTREAM_LOG_LEVEL": "WARNING", "PYTHONDONTWRITEBYTECODE": "1", **variables}


def _signal_group(pid: int, signum: signal.Signals) -> None:
    try:
        os.killpg(pid, signum)
    except ProcessLookupError:
        pass
