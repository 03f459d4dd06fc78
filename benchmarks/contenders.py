"""Who is measured, and one run of one of them on an emptied server."""

from __future__ import annotations

import asyncio
import json
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from skillstream_schemas.settings import Settings
from skillstream_worker.broker import WorkerBroker

from .agents import agent
from .environments import Environments
from .processes import ProcessEnded, ProcessGroups, cpu_seconds, last_lines
from .programs.recording import records, started
from .server import Server

READY_S = 60.0
DONE_S = 180.0
_CARD_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Contender:
    """Someone who runs no-op tasks: its program, the environment that it needs, and its variant."""

    name: str
    program: str
    environment: str = ""
    variant: str = ""

    @property
    def is_ours(self) -> bool:
        """True for skillstream."""
        return self.program.startswith("skillstream")


OURS = Contender("skillstream", "skillstream")
OURS_SYNC = Contender("skillstream, SyncClient", "skillstream_sync")
TWO_STEPS = Contender("ceiling: its two scripts, bare socket", "two_steps")
FLOOR = Contender("ceiling: floor-state", "floor")
ARQ = Contender("arq", "arq", "arq", "default")
ARQ_FAST = Contender("arq, poll 10 ms", "arq", "arq", "fast")
TASKIQ = Contender("taskiq-redis streams", "taskiq", "taskiq")
SAQ = Contender("saq", "saq", "saq")
DRAMATIQ = Contender("dramatiq", "dramatiq", "dramatiq")


class Run:
    """Responsible for the processes of one contender during one measurement."""

    def __init__(self, contender: Contender, python: str, server: Server, processes: ProcessGroups, folder: Path) -> None:
        self._contender, self._python, self._server = contender, python, server
        self._processes, self.folder = processes, folder
        self._workers: list[subprocess.Popen[str]] = []
        self._variables = {"BENCH_URL": server.url, "BENCH_FOLDER": str(folder), "BENCH_VARIANT": contender.variant}

    def submit(self, count: int, callers: int = 100) -> float:
        """Submits no-op tasks in a process of its own; returns the seconds that it took."""
        with self._client("submit", str(count), str(callers)) as seconds:
            return seconds

    def submit_slowly(self, count: int, interval_s: float) -> None:
        """Submits one task each interval, with jitter."""
        with self._client("latency", str(count), str(interval_s)):
            pass

    def start_workers(self, count: int = 1) -> None:
        """Starts workers and waits until all are ready; none takes a task before `go`."""
        if self._contender.is_ours:
            target = self._contender.variant or "benchmarks.agents:agent"
            command = [sys.executable, "-m", "skillstream", "worker", target, "--redis", self._server.url]
        else:
            command = self._command("worker")
        variables = {**self._variables, "BENCH_WAIT": "1"}
        self._workers += [self._processes.start(command, self._log, variables) for _ in range(count)]
        self._wait(lambda: len(list(self.folder.glob("ready.*"))) >= count, READY_S, "be ready")

    def go(self) -> None:
        """Lets all workers go."""
        (self.folder / "go").touch()

    def seconds_until_done(self, count: int) -> float:
        """Waits until `count` tasks are done; returns the seconds since the first one started.

        A task of a peer is done when its last task has started, ours when the last one is settled.
        """
        self.until_started(count)
        if self._contender.is_ours:
            self._wait(lambda: self._server.client.zcard(agent.queue) == 0, DONE_S, f"settle {count} tasks")
            end_s = time.time()
            self._check(count)
        else:
            end_s = max(start_s for _, start_s in records(self.folder))
        return end_s - min(start_s for _, start_s in records(self.folder))

    def until_started(self, count: int) -> None:
        """Waits until so many tasks have started."""
        self._wait(lambda: self.started >= count, DONE_S, f"start {count} tasks")

    def starts(self) -> dict[float, float]:
        """When the task sent at a moment has started."""
        return dict(records(self.folder))

    def latencies_ms(self) -> list[float]:
        """From before each submission to the task's first line."""
        return [1000 * (start_s - sent_s) for sent_s, start_s in records(self.folder)]

    @property
    def started(self) -> int:
        """How many tasks have started."""
        return started(self.folder)

    @property
    def worker_pid(self) -> int:
        """The process of the first worker."""
        return self._workers[0].pid

    @property
    def workers_cpu_s(self) -> float:
        """Processor seconds of the workers until now."""
        return cpu_seconds(*(worker.pid for worker in self._workers))

    @property
    def _log(self) -> Path:
        return self.folder / "log.txt"

    def _command(self, *arguments: str) -> list[str]:
        return [self._python, "-m", f"benchmarks.programs.{self._contender.program}_program", *arguments]

    @contextmanager
    def _client(self, *arguments: str) -> Iterator[float]:
        if self._contender.is_ours:
            asyncio.run(announce(self._server.url))
        child = self._processes.converse(self._command(*arguments), self._log, self._variables)
        assert child.stdout is not None
        assert child.stdin is not None
        if not select.select([child.stdout], [], [], DONE_S)[0]:
            raise ProcessEnded(f"{self._contender.name}: the client did not end within {DONE_S:g} s")
        line = child.stdout.readline()
        if not line:
            raise ProcessEnded(f"{self._contender.name}: the client ended: {last_lines(self._log.read_text())}")
        yield float(json.loads(line)["seconds"])
        child.stdin.close()
        child.wait(READY_S)

    def _check(self, count: int) -> None:
        """Every task rang three times: submitted, opened, final; no router runs that would take the rings."""
        keys = Settings().keys
        rings = sum(self._server.client.xlen(keys.inbox(shard)) for shard in range(keys.shard_count))
        if (self.started, rings) != (count, 3 * count):
            raise RuntimeError(f"{count} tasks were submitted, {self.started} started, {rings} rings instead of {3 * count}")

    def _wait(self, condition: Callable[[], bool], patience_s: float, what: str) -> None:
        give_up_s = time.monotonic() + patience_s
        while not condition():
            if any(worker.poll() is not None for worker in self._workers):
                raise ProcessEnded(f"{self._contender.name}: a worker ended: {last_lines(self._log.read_text())}")
            if time.monotonic() > give_up_s:
                raise ProcessEnded(f"{self._contender.name} did not {what} within {patience_s:g} s")
            time.sleep(0.003)


@contextmanager
def a_run(contender: Contender, environments: Environments, server: Server) -> Iterator[Run]:
    """One run on an emptied server; its processes end and its folder goes with the block. Raises NotInstalled."""
    python = environments.python(contender.environment)
    server.client.flushall()
    folder = Path(tempfile.mkdtemp(prefix="skillstream-bench-"))
    try:
        with ProcessGroups() as processes:
            yield Run(contender, python, server, processes, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def announce(url: str) -> None:
    """Puts the card of the measured agent on the broker, so that tasks can be submitted before a worker runs."""
    broker = WorkerBroker(Settings(redis_url=url), "benchmark")
    await broker.open()
    try:
        await broker.announce(agent.card, _CARD_MS)
    finally:
        await broker.close()
