"""Several processes under one command: what becomes of one that ends by itself."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from skillstream_worker.processes import Processes
from tests.support.processes import ROOT, START_S, is_running, until

CHILD = """
import os, signal, sys, time
from pathlib import Path

folder, code = Path(sys.argv[1]), int(sys.argv[2])
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
mine = len(list(folder.iterdir()))
(folder / str(os.getpid())).touch()
if mine == 0:
    if code < 0:
        os.kill(os.getpid(), -code)
    sys.exit(code)
while True:
    time.sleep(0.05)
"""


def _processes(folder: Path, code: int, count: int, settled_s: float) -> Processes:
    command = [sys.executable, "-c", CHILD, str(folder), str(code)]
    return Processes(command, count, dict(os.environ), settled_s=settled_s)


@pytest.mark.parametrize(("code", "ours"), [(2, 2), (4, 4), (1, 1), (7, 1), (-9, 1)])
async def test_one_that_breaks_at_its_start_stops_all(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], code: int, ours: int
) -> None:
    running = _processes(tmp_path, code, 1, settled_s=60)
    assert await asyncio.wait_for(running.run(), 30) == ours
    assert f"ended by itself with exit code {code} at its start; all are stopped" in capfd.readouterr().err


def test_one_that_breaks_later_is_started_again(tmp_path: Path) -> None:
    code = f"import asyncio, tests.worker.test_processes as t; asyncio.run(t.run({str(tmp_path)!r}))"
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.PIPE, text=True) as parent:
        until(lambda: len(list(tmp_path.iterdir())) == 2)
        (first,) = (path for path in tmp_path.iterdir() if not is_running(int(path.name)))
        parent.terminate()
        assert parent.wait(START_S) == 0
        assert parent.stderr is not None
        said = f"worker process {first.name} ended by itself with exit code -9; another one is started\n"
        assert parent.stderr.read() == said


async def run(folder: str) -> None:
    """The parent: its first child kills itself."""
    raise SystemExit(await _processes(Path(folder), -9, 1, settled_s=0).run())
