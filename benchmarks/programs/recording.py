"""In every contender's processes: how a task says that it started, and how workers begin together.

Standard library only, so that it imports in every environment. A record is two little-endian doubles, when the task
was sent and when it started (Unix seconds), in a file of the process: one system call and no Redis command, the same for all.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path

URL = os.environ.get("BENCH_URL", "")
FOLDER = Path(os.environ.get("BENCH_FOLDER", "."))
VARIANT = os.environ.get("BENCH_VARIANT", "")
CONCURRENCY = 100
ROW = struct.Struct("<dd")
_GO_S = 60.0

_files: dict[int, int] = {}


def record(sent: float) -> None:
    """Says that the task sent at `sent` has started."""
    now = time.time()
    pid = os.getpid()
    if pid not in _files:
        _files[pid] = os.open(FOLDER / f"started.{pid}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(_files[pid], ROW.pack(sent, now))


def wait_for_the_others() -> None:
    """Says that this worker is ready, and waits until all are let go."""
    (FOLDER / f"ready.{os.getpid()}").touch()
    give_up_s = time.monotonic() + _GO_S
    while not (FOLDER / "go").exists():
        if time.monotonic() > give_up_s:
            raise SystemExit("nobody let this worker go")
        time.sleep(0.002)


def started(folder: Path) -> int:
    """How many tasks have started."""
    return sum(file.stat().st_size for file in folder.glob("started.*")) // ROW.size


def records(folder: Path) -> Iterator[tuple[float, float]]:
    """When each task was sent and started."""
    for file in folder.glob("started.*"):
        yield from ROW.iter_unpack(file.read_bytes())
