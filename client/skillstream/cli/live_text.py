"""A task's text as a person sees it: as it comes, with what the skill reports under it."""

from __future__ import annotations

from contextlib import aclosing

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.control import Control
from rich.segment import ControlType
from rich.text import Text

from skillstream.task import Task
from skillstream_schemas.event import ChunkEvent, FinalEvent, ResetEvent, StatusEvent

from .output import note, printable, write
from .table import STEERING


class LiveText:
    """Responsible for showing one task's text from a cursor on, `length` code points of which were read before.

    What the skill reports stands on standard error where that is a terminal too: on a line of its own that goes away with
    the next text, and never within a line of text.
    """

    _ERASE = Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2))

    def __init__(self, task: Task, length: int) -> None:
        self._task, self._length = task, length
        self._at_line_start = True
        self._report = ""
        self._is_reported = False
        terminal = Console(stderr=True)
        self._terminal = terminal if terminal.is_terminal and not terminal.is_dumb_terminal else None

    async def show(self, after: str) -> None:
        """Shows what comes behind `after`, up to the final; errors as those of `Task.events`."""
        try:
            async with aclosing(self._task.events(after)) as events:
                async for event in events:
                    match event:
                        case StatusEvent():
                            self._say(_shown(event))
                        case ChunkEvent(text=str() as piece):
                            self._write(piece)
                        case ResetEvent(attempt=attempt, keep=keep):
                            self._take_back(attempt, keep)
                        case FinalEvent(chunks=0, text=text) if len(text) > self._length:
                            self._write(text[self._length :])
                        case _:
                            pass
        finally:
            self._clear()

    def _write(self, piece: str) -> None:
        self._clear()
        self._length += len(piece)
        write(printable(piece), end="")
        self._at_line_start = piece.endswith("\n")
        if self._at_line_start:
            self._say(self._report)

    def _take_back(self, attempt: int, keep: int) -> None:
        if keep >= self._length:
            return
        self._clear()
        self._length = keep
        note(f"\ntext_reset: attempt {attempt} writes the text again {taken_back(keep)}")
        self._at_line_start = True

    def _say(self, report: str) -> None:
        self._report = report
        if self._terminal is None or not self._at_line_start:
            return
        self._clear()
        if report:
            room = self._terminal.width - 1  # a full line would wrap
            text = report if cell_len(report) <= room else set_cell_size(report, room - 1) + "…"
            self._terminal.print(Text(text, style="dim"), end="")
            self._is_reported = True

    def _clear(self) -> None:
        if self._terminal is not None and self._is_reported:
            self._terminal.control(self._ERASE)
            self._is_reported = False


def taken_back(keep: int) -> str:
    """How much of a text is written again, in words."""
    return "from the start" if keep == 0 else f"behind its first {keep} characters"


def _shown(event: StatusEvent) -> str:
    """What a status says to who waits for text."""
    if event.text is not None:
        done = "" if event.progress is None else f"{event.progress:4.0%}  "
        return done + " ".join(event.text.translate(STEERING).split())
    if event.worker is not None:
        return "working" if event.id.attempt == 1 else f"attempt {event.id.attempt}"
    return "waiting for a worker" if event.handed_back is None else "waiting for another attempt"
