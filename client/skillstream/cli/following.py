"""Showing a task's events on the command line."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from enum import StrEnum

from skillstream.task import Task
from skillstream_schemas.errors import TextReset
from skillstream_schemas.event import ChunkEvent, FinalEvent, FollowedEvent, ResetEvent, StatusEvent
from skillstream_schemas.ids import EventId
from skillstream_schemas.request import compact_json
from skillstream_schemas.state import TaskState

from .exits import Exit, exit_of_state
from .live_text import LiveText, taken_back
from .output import console, is_person, note, printable, write


class Show(StrEnum):
    """What of a task is printed."""

    LINES = "lines"
    TEXT = "text"
    JSON = "json"


async def show(task: Task, how: Show, after: str = "0") -> Exit:
    """Prints a task's events from `after` to its final; the exit code tells how it ended.

    Ctrl-C ends the following alone, and says so.
    """
    try:
        return await (_show_text(task, after) if how is Show.TEXT else _show_events(task, how, after))
    except asyncio.CancelledError:
        note(f"\ntask {task.id} goes on: skillstream tail {task.id} follows it, skillstream cancel {task.id} ends it")
        raise


async def _show_events(task: Task, how: Show, after: str) -> Exit:
    code = Exit.FAILED
    async with aclosing(task.events(after)) as events:
        async for event in events:
            if how is Show.JSON:
                write(event.model_dump_json(exclude_none=True))
            else:
                _show_line(event)
            if isinstance(event, FinalEvent):
                code = exit_of_state(event.state)
    return code if after == "0" else exit_of_state((await task.result()).state)


async def _show_text(task: Task, after: str) -> Exit:
    """A person sees the text as it comes; a file or a pipe, which cannot take it back, gets it whole and once.

    A task that has no text has its structured result there, as JSON.
    """
    start = await task.length_at(EventId.parse(after))
    if is_person():
        await LiveText(task, start).show(after)
        held = ""
    else:
        held = await _whole_text(task, start, after)
    final = await task.result()
    write(held if final.text or final.data is None else compact_json(final.data))
    if final.state is not TaskState.COMPLETED:
        note(printable(" ".join(filter(None, (final.state.value, final.error, final.reason)))))
    return exit_of_state(final.state)


async def _whole_text(task: Task, start: int, after: str) -> str:
    """The text behind the first `start` code points, or behind what of them was not taken back, once the task has ended."""
    held = ""
    while True:
        try:
            async with aclosing(task.text(after)) as pieces:
                async for piece in pieces:
                    held += piece
            return held
        except TextReset as reset:
            if reset.keep < start:  # what came before `--after` is out of our hands
                note(f"\n{reset.code}: attempt {reset.attempt} writes the text again {taken_back(reset.keep)}")
            start = min(start, reset.keep)
            held = held[: reset.keep - start]
            after = reset.after


def _show_line(event: FollowedEvent) -> None:
    if isinstance(event, ResetEvent):
        place, kind, text = "", "reset", f"attempt {event.attempt} keeps {event.keep} characters"
    else:
        place, kind, text = str(event.id), _kind(event), _summary(event)
    if is_person():
        colour = {"chunk": "default", "final": "bold green", "reset": "yellow"}.get(kind, "cyan")
        console().print(f"[dim]{place:>8}[/dim] ", f"{kind:<9} ", sep="", end="", style="dim", markup=True)
        console().print(text, style=colour, markup=False)
    else:
        write(f"{place}\t{kind}\t{compact_json(text)}")


def _kind(event: StatusEvent | ChunkEvent | FinalEvent) -> str:
    if isinstance(event, StatusEvent):
        return "status" if event.text is not None else str(event.state or event.handed_back)
    return event.type


def _summary(event: StatusEvent | ChunkEvent | FinalEvent) -> str:
    match event:
        case StatusEvent(request=request) if request is not None:
            return f"{request.agent}/{request.skill}: {request.message[:200]}"
        case StatusEvent(worker=str() as worker):
            return f"attempt {event.id.attempt} by {worker}"
        case StatusEvent(text=str() as text, progress=progress):
            return text if progress is None else f"{text} ({progress:.0%})"
        case StatusEvent():
            return f"handed back: {event.handed_back}"
        case ChunkEvent(text=str() as text):
            return text
        case ChunkEvent():
            return f"{event.mode}: {compact_json(event.data)}"
        case FinalEvent():
            data = compact_json(event.data) if event.data is not None else None
            return " ".join(filter(None, (event.state.value, event.error, event.reason, data)))
