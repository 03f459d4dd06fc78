"""The command `skillstream` in its first moment, before it imports anything that takes long: Ctrl-C ends it without a word."""

from __future__ import annotations

import os
import signal
from types import FrameType

INTERRUPTED = 130
"""The exit code of a command that Ctrl-C ended."""


def main() -> None:
    """Runs the command line."""
    end_at_ctrl_c()
    from skillstream.__main__ import main as run

    run()


def end_at_ctrl_c() -> None:
    """Has Ctrl-C end the process at once, until an event loop takes it over (`skillstream.cli.process`).

    Python's own handler raises wherever an import is, and what is imported may swallow that.
    """
    signal.signal(signal.SIGINT, leave_at_once)


def leave_at_once(number: int, frame: FrameType | None) -> None:
    """The handler: ends the process without a word."""
    os._exit(INTERRUPTED)
