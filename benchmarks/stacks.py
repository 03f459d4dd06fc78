"""Who streams tokens to an HTTP client, and one stack of them: server, worker and broker as separate processes."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import listening
from .environments import Environments
from .processes import ROOT, ProcessEnded, ProcessGroups, apart, last_lines
from .server import Server

_LANGGRAPH_VARIABLES = {"LANGGRAPH_CLI_NO_ANALYTICS": "1", "LANGSMITH_TRACING": "false"}


@dataclass(frozen=True, slots=True)
class Stack:
    """A contender: the protocol that its client speaks, the environment that it needs, and its variant."""

    name: str
    dialect: str
    environment: str = ""
    variant: str = ""

    @property
    def has_worker(self) -> bool:
        """False where the task runs in the server's own process."""
        return self.dialect in ("skillstream", "recipe")


OURS = Stack("skillstream", "skillstream", variant="tell")
UNMERGED = Stack("skillstream, merging off", "skillstream", variant="tell-unmerged")
RESUMING = Stack("skillstream, on_retry=resume", "skillstream", variant="tell-on")
RECIPE = Stack("FastAPI + arq + pub/sub, poll 10 ms", "recipe", "recipe", "fast")
RECIPE_AS_IT_SHIPS = Stack("FastAPI + arq + pub/sub", "recipe", "recipe", "default")
A2A = Stack("a2a-sdk, one process", "a2a", "a2a")
LANGGRAPH = Stack("langgraph dev, one process", "langgraph", "langgraph")


class RunningStack:
    """Responsible for the processes of one contender, and for the clients that measure it."""

    def __init__(self, stack: Stack, python: str, server: Server, processes: ProcessGroups, folder: Path) -> None:
        self._stack, self._python, self._server, self._processes, self._folder = stack, python, server, processes, folder
        self._port = _free_port()
        self._variables = {"BENCH_URL": server.url, "BENCH_VARIANT": stack.variant}
        self._runner: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Starts all, and returns once runs go through."""
        front = self._start(self._front())
        self._runner = self._start(self._worker()) if self._stack.has_worker else front
        try:
            self.ask(listening.ready)
        except ProcessEnded as error:
            raise ProcessEnded(f"{self._stack.name} did not come up: {error}; {last_lines(self._log.read_text())}") from None

    def start_again(self) -> None:
        """Starts what runs the tasks once more, after it was killed."""
        self._runner = self._start(self._worker() if self._stack.has_worker else self._front())

    @property
    def runner(self) -> subprocess.Popen[str]:
        """The process that runs the tasks."""
        assert self._runner is not None
        return self._runner

    def ask(self, measure: Callable[..., Any], **arguments: Any) -> Mapping[str, float]:
        """Runs a measurement of `listening` in a client process of its own."""
        url = f"http://127.0.0.1:{self._port}"
        where = {"url": url, "dialect": self._stack.dialect, "variant": self._stack.variant}
        found: dict[str, float] = apart(measure, loop="asyncio", **where, **arguments)
        return found

    @property
    def _log(self) -> Path:
        return self._folder / "log.txt"

    def _start(self, command: list[str]) -> subprocess.Popen[str]:
        folder = self._folder if self._stack.dialect == "langgraph" else ROOT
        variables = {**self._variables, **(_LANGGRAPH_VARIABLES if self._stack.dialect == "langgraph" else {})}
        return self._processes.start(command, self._log, variables, folder=folder)

    def _front(self) -> list[str]:
        port = str(self._port)
        match self._stack.dialect:
            case "skillstream":
                where = ["--redis", self._server.url, "--database", f"sqlite:///{self._folder}/tasks.db"]
                return [sys.executable, "-m", "skillstream", "router", *where, "--http", f"127.0.0.1:{port}"]
            case "recipe":
                return [self._python, "-m", "benchmarks.programs.recipe_program", "api", port]
            case "a2a":
                return [self._python, "-m", "benchmarks.programs.a2a_program", port]
            case _:
                shutil.copy(ROOT / "benchmarks" / "programs" / "langgraph_program.py", self._folder / "teller.py")
                described = {"dependencies": ["."], "graphs": {"teller": "./teller.py:graph"}}
                (self._folder / "langgraph.json").write_text(json.dumps(described))
                command = str(Path(self._python).with_name("langgraph"))
                return [command, "dev", "--no-browser", "--no-reload", "--n-jobs-per-worker", "50", "--port", port]

    def _worker(self) -> list[str]:
        if self._stack.dialect == "skillstream":
            return [sys.executable, "-m", "skillstream", "worker", "benchmarks.tellers:agent", "--redis", self._server.url]
        return [self._python, "-m", "benchmarks.programs.recipe_program", "worker"]


@contextmanager
def a_stack(stack: Stack, environments: Environments, server: Server) -> Iterator[RunningStack]:
    """A stack that runs, on an emptied server; its processes end with the block. Raises NotInstalled, ProcessEnded."""
    python = environments.python(stack.environment)
    server.client.flushall()
    folder = Path(tempfile.mkdtemp(prefix="skillstream-bench-"))
    try:
        with ProcessGroups() as processes:
            running = RunningStack(stack, python, server, processes, folder)
            running.start()
            yield running
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
