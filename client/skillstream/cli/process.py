"""What every long-running process of ours does alike: the fastest event loop, a calm garbage collector, an end when told to."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Annotated, Any, Protocol, TypeVar

import typer

from skillstream_command import leave_at_once
from skillstream_schemas.errors import InvalidSettings

log = logging.getLogger(__name__)
T = TypeVar("T")
UntilEof = Annotated[
    bool, typer.Option("--until-eof", help="Stop too when standard input closes: the process that started this one has died.")
]
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_THREADS_S = 1.0
_ORPHANED = 75
_LONG_START_S = 2.0

try:
    import uvloop
except ImportError:

    def _run(work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run(work)

else:

    def _run(work: Coroutine[Any, Any, T]) -> T:
        return uvloop.run(work)


def run_loop(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine on a new event loop, which Ctrl-C cancels; before and behind it, Ctrl-C ends the command at once."""
    if signal.getsignal(signal.SIGINT) is not leave_at_once:  # no command, but somebody's program
        return _run(work)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return _run(work)
    finally:
        signal.signal(signal.SIGINT, leave_at_once)


def log_to_stderr() -> None:
    """Has the log of this process on standard error; raises InvalidSettings for a level that there is not."""
    level = os.environ.get("SKILLSTREAM_LOG_LEVEL") or "INFO"
    if level.upper() not in _LEVELS:
        raise InvalidSettings(f"log_level: {level!r} is none of {', '.join(_LEVELS)}")
    logging.basicConfig(level=level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s")


def calm_garbage_collector() -> None:
    """Keeps the collector from looking through all modules each few tasks: a fifth of the time of small tasks.

    Called once all is loaded and before the work begins.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


async def leave(code: int, *, left_behind: int = 0) -> int:
    """Called last in a process: returns its exit code, or ends it here where code goes on that cannot be ended.

    `left_behind` counts tasks that do not let go; threads of the event loop's executor are looked for.
    """
    threads = asyncio.ensure_future(asyncio.get_running_loop().shutdown_default_executor())
    done, _ = await asyncio.wait([threads], timeout=_THREADS_S)
    if not done or left_behind:
        log.warning("the process ends while skills still run in it: %d tasks, threads: %s", left_behind, "no" if done else "yes")
        _end_by_force(code)
    return code


class Stoppable(Protocol):
    """What runs until it is told to stop."""

    async def run(self) -> None:
        """Runs until `stop`."""

    def stop(self) -> None:
        """Has `run` stop cleanly."""


@contextlib.contextmanager
def saying_what_takes_long(waiting_for: str) -> Iterator[None]:
    """Says what is waited for, where that takes longer than a start should."""
    timer = asyncio.get_running_loop().call_later(_LONG_START_S, log.warning, "waiting for %s", waiting_for)
    try:
        yield
    finally:
        timer.cancel()


async def run_until_told(running: Stoppable, announcing: Coroutine[Any, Any, None], waiting_for: str) -> None:
    """Runs until SIGINT or SIGTERM, or until it ends by itself.

    `announcing` says meanwhile that it is ready; where that takes long, a line names what is waited for.
    """
    when_told(running.stop)
    announcement = asyncio.create_task(_announce(announcing, waiting_for))
    try:
        await running.run()
    finally:
        announcement.cancel()


async def _announce(announcing: Coroutine[Any, Any, None], waiting_for: str) -> None:
    with saying_what_takes_long(waiting_for):
        await announcing


def when_told(tell: Callable[[], None]) -> None:
    """Has `tell` called on the event loop at each SIGINT and SIGTERM."""
    for signum in STOP_SIGNALS:
        asyncio.get_running_loop().add_signal_handler(signum, tell)


def when_parent_ends(tell: Callable[[], None], *, force_after_s: float = 30.0) -> None:
    """Has `tell` called on the event loop once standard input closes, whose other end the parent holds.

    A thread listens, so that a process ends too whose event loop stands still: by force, `force_after_s` later.
    """
    loop = asyncio.get_running_loop()

    def listen() -> None:
        with contextlib.suppress(OSError):
            while os.read(0, 4096):
                pass
        with contextlib.suppress(RuntimeError):  # the loop is closed: the process ends anyway
            loop.call_soon_threadsafe(tell)
        time.sleep(force_after_s)
        log.error("the process outlived its parent by %g s and ends by force", force_after_s)
        _end_by_force(_ORPHANED)

    threading.Thread(target=listen, name="skillstream-parent", daemon=True).start()


def _end_by_force(code: int) -> None:
    with contextlib.suppress(OSError, ValueError):  # nobody may be left to read
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)
