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

_PIECES_PER_TURN = 64
"""A generator that never awaits would hold the event loop: it is interrupted after so many pieces."""


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
    snapshot: Any = None
    said = 0
    task = asyncio.current_task()
    assert task is not None
    async with aclosing(skill.function(message, context)) as pieces:
        async for piece in pieces:
            if task.cancelling():  # it swallowed the cancellation and goes on
                raise asyncio.CancelledError
            if isinstance(piece, str):
                if piece:
                    publication.add_text(piece)
            elif isinstance(piece, Response):
                if piece.state is not TaskState.WORKING:
                    return _end(piece, snapshot)
                add_status(publication, piece.text, piece.progress, piece.metadata)
            else:
                snapshot = _structured(piece)
                publication.add_entry("type", "chunk", "mode", "snapshot", "data", compact_json(snapshot))
            if publication.is_full:
                await publication.room()
            elif said % _PIECES_PER_TURN == 0:
                await asyncio.sleep(0)
            said += 1
    return End(TaskState.COMPLETED, data=snapshot)


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
