"""What a person at a terminal sees of a task that is followed: its text, and what the skill reports until more comes."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from skillstream_schemas.settings import Settings
from tests.support.processes import START_S, until

from .hand_worker import HandWorker

ERASE = "\r\x1b[2K"


class Terminal:
    """Responsible for a command at a terminal of 80 columns; `screen` is all that it wrote."""

    def __init__(self, arguments: list[str], env: dict[str, str]) -> None:
        self.screen = ""
        ours, theirs = pty.openpty()
        self._ours = ours
        self._process = subprocess.Popen(
            [sys.executable, "-m", "skillstream", *arguments], stdin=theirs, stdout=theirs, stderr=theirs,
            env=os.environ | {"TERM": "xterm", "COLUMNS": "80"} | env,
        )  # fmt: skip
        os.close(theirs)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def shows(self, words: str) -> None:
        """Waits for these words."""
        until(lambda: words in self.screen)

    def ended(self) -> int:
        """The exit code, once all is read."""
        code = self._process.wait(START_S)
        self._reader.join(START_S)
        return code

    def close(self) -> None:
        """Ends the command where it runs."""
        self._process.kill()
        self._process.wait()
        self._reader.join(START_S)
        os.close(self._ours)

    def _read(self) -> None:
        try:
            while came := os.read(self._ours, 4096):
                self.screen += came.decode().replace("\r\n", "\n")
        except OSError:  # the terminal has no more users
            pass


@pytest.fixture
def tail(settings: Settings, hand: HandWorker, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Terminal]:
    """`tail t1 --text` of a task that waits."""
    hand.submit("t1")
    env = {
        "SKILLSTREAM_REDIS_URL": settings.redis_url,
        "SKILLSTREAM_SHARDS": str(settings.shards),
        "XDG_STATE_HOME": str(tmp_path),
    }
    terminal = Terminal(["tail", "t1", "--text"], env | getattr(request, "param", {}))
    yield terminal
    terminal.close()


def test_reports_stand_until_more_comes(tail: Terminal, hand: HandWorker) -> None:
    tail.shows("waiting for a worker")
    hand.open("t1")
    tail.shows("working")
    hand.add("t1", "1-2", type="status", state="working", text="Searching\x1b[31m\n" + "x" * 100, progress=0.1)
    tail.shows(" 10%  Searching")
    hand.say("t1", "# Ti", seq=3)
    tail.shows("# Ti")
    hand.add("t1", "1-4", type="status", state="working", text="Reading", progress=1)
    hand.say("t1", "des\n", seq=5)
    tail.shows("Reading")
    hand.finish("t1", "1-6", "# Tides\n", chunks=2)
    assert tail.ended() == 0
    shown = [part.replace("\x1b[2m", "").replace("\x1b[0m", "") for part in tail.screen.split(ERASE)]
    long = shown.pop(2)
    assert (len(long), long[-1], "\x1b" in long, "\n" in long) == (79, "…", False, False)
    assert shown == ["waiting for a worker", "working", "# Tides\n100%  Reading", "\n"]


@pytest.mark.parametrize("tail", [{"TERM": "dumb"}], indirect=True)
def test_a_terminal_without_control_shows_text_alone(tail: Terminal, hand: HandWorker) -> None:
    hand.open("t1")
    hand.add("t1", "1-2", type="status", state="working", text="Searching")
    hand.say("t1", "tides", seq=3)
    hand.finish("t1", "1-4", "tides", chunks=1)
    assert tail.ended() == 0
    assert tail.screen == "tides\n"


def test_text_that_is_taken_back_is_told(tail: Terminal, hand: HandWorker) -> None:
    hand.open("t1")
    hand.say("t1", "one two")
    tail.shows("one two")
    hand.open("t1", 2)
    hand.say("t1", "three", attempt=2)
    hand.finish("t1", "2-3", "three", chunks=1)
    assert tail.ended() == 0
    assert tail.screen.endswith(
        "one two\ntext_reset: attempt 2 writes the text again from the start\n\x1b[2mattempt 2\x1b[0m" + ERASE + "three\n"
    )
