"""Running a skill's function and saying what it yields."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

from pydantic import BaseModel

from skillstream_schemas.errors import OutputTooLarge
from skillstream_schemas.limits import Limits, utf8_length
from skillstream_schemas.request import compact_json
from skillstream_schemas.state import TaskState

from .context import TaskContext, add_status
from .outcome import End
from .publication import Publication
from .response import Response
from .skill import Skill
from .turn import Turn

_PIECE_CHARS = 20  # what a piece counts that takes the long way


async def perform(skill: Skill, message: str, context: TaskContext, publication: Publication, limits: Limits) -> End:
    """Runs a skill to its end and publishes what it yields; returns how the task ends.

    Raises whatever the skill raises, TypeError for a piece of another kind, OutputTooLarge, EventTooLarge, Unpublishable.
    """
    if skill.streams:
        end = await _stream(skill, message, context, publication)
    else:
        end = _end_of(await skill.function(message, context))
    if end.own_text:
        _check_size("text", end.own_text, limits)
    for name, value in (("data", end.data), ("metadata", end.metadata)):
        if value:
            _check_size(name, compact_json(value), limits)
    return end


def _check_size(name: str, text: str, limits: Limits) -> None:
    if utf8_length(text) > limits.output_bytes:
        raise OutputTooLarge(f"the {name} of the final is over {limits.output_bytes} bytes")


async def _stream(skill: Skill, message: str, context: TaskContext, publication: Publication) -> End:
    """Says what a generator yields. Text takes the short way: a list's append, looked at once a turn of the event loop."""
    snapshot: Any = None
    fresh = [] if publication.fresh is None else publication.fresh
    quick: Any = _NothingIsQuick if publication.fresh is None else str
    turn = Turn(publication.clock)
    credit = turn.begin()
    async with aclosing(skill.function(message, context)) as pieces:
        async for piece in pieces:
            if type(piece) is quick:
                if not fresh and publication.had_turn():
                    _check_cancelled()
                    credit = turn.begin()
                fresh.append(piece)
                credit -= len(piece) or 1
                if credit > 0:
                    continue
                publication.gather()
            elif isinstance(piece, Response) and piece.state is not TaskState.WORKING:
                return _end(piece, snapshot)
            else:
                if publication.had_turn():
                    _check_cancelled()
                    credit = turn.begin()
                snapshot = _say(piece, snapshot, publication)
                credit -= _PIECE_CHARS
            if publication.is_full:
                await publication.room()
                credit = turn.begin()
            elif credit <= 0:
                turn.end()
                await asyncio.sleep(0)
                credit = turn.begin()
    publication.gather()
    return End(TaskState.COMPLETED, data=snapshot)


class _NothingIsQuick:
    """No piece is of this kind."""


def _check_cancelled() -> None:
    """Raises CancelledError in a skill that swallowed its cancellation and goes on."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _say(piece: Any, snapshot: Any, publication: Publication) -> Any:
    """Says a piece that is no plain text on its short way; returns the newest snapshot."""
    if isinstance(piece, str):
        if piece:
            publication.add_text(piece)
    elif isinstance(piece, Response):
        add_status(publication, piece.text, piece.progress, piece.metadata)
    else:
        snapshot = _structured(piece)
        publication.add_entry("type", "chunk", "mode", "snapshot", "data", compact_json(snapshot))
    return snapshot


def _end_of(value: Any) -> End:
    if value is None:
        return End(TaskState.COMPLETED)
    if isinstance(value, str):
        return End(TaskState.COMPLETED, own_text=value)
    if isinstance(value, Response):
        if value.state is TaskState.WORKING:
            raise TypeError("a skill that returns cannot return a Response with the status working")
        return _end(value, None)
    return End(TaskState.COMPLETED, data=_structured(value))


def _end(response: Response, snapshot: Any) -> End:
    return End(response.state, own_text=response.text, metadata=response.metadata, data=snapshot)


def _structured(piece: Any) -> Any:
    if isinstance(piece, BaseModel):
        return piece.model_dump(mode="json")
    if isinstance(piece, dict):
        return piece
    raise TypeError(f"a skill yields or returns str, Response, a pydantic model or dict, not {type(piece).__name__}")
