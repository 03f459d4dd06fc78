"""A workflow as a skill: its tasks run on workers through the broker like those of any other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

from pydantic import ValidationError
from pydantic_core import from_json, to_jsonable_python

from skillstream_schemas.request import describe
from skillstream_schemas.state import TaskState
from skillstream_schemas.workflow_errors import InvalidEvent, InvalidNodeOutput
from skillstream_worker.context import TaskContext as SkillContext
from skillstream_worker.response import Response
from skillstream_worker.skill import Piece

from .context import TaskContext
from .unwrapping import Said, Unwrapping

if TYPE_CHECKING:
    from .workflow import Workflow


class TaskSkill:
    """Responsible for running a workflow as the task of a skill; `run` is the skill's function.

    The event is the task's `data`; without that its message, as JSON, or as what the event schema's own
    `from_message(message, history)` makes of it. Text becomes chunks, structured content snapshots or JSON Patches.
    """

    def __init__(self, workflow: Workflow) -> None:
        self._workflow = workflow

    async def run(self, message: str, context: SkillContext) -> AsyncGenerator[Piece, None]:
        """Yields what the workflow's nodes stream, then its result."""
        task_context = TaskContext(skill=context)
        unwrapping = Unwrapping()
        items = self._workflow.run_stream_async(self._event(message, context), task_context)
        try:
            async with aclosing(cast(AsyncGenerator[dict[str, Any], None], items)):
                async for item in items:
                    for piece in await _without_patches(unwrapping.take(item), context):
                        yield piece
        except (asyncio.CancelledError, GeneratorExit):
            raise  # nobody takes more
        except BaseException:
            for piece in await _without_patches(unwrapping.rest(), context):
                yield piece  # what nodes said stays, whatever happened to one of them
            raise
        for piece in await _without_patches(unwrapping.rest(), context):
            yield piece
        output = next(reversed(task_context.nodes.values()), None)
        if unwrapping.structured is None and (structured := _structured(output)) is not None:
            yield structured
        yield _end(output, task_context)

    def _event(self, message: str, context: SkillContext) -> Any:
        if context.data is not None:
            return context.data
        from_message = getattr(self._workflow.workflow_schema.event_schema, "from_message", None)
        try:
            return from_json(message) if from_message is None else from_message(message, context.conversation_history)
        except ValidationError as error:
            raise InvalidEvent(f"{type(self._workflow).__name__}: {describe(error)}") from None
        except ValueError as error:
            raise InvalidEvent(f"{type(self._workflow).__name__}: the message is no JSON: {error}") from None


async def _without_patches(pieces: Iterable[Said], context: SkillContext) -> list[Piece]:
    """Pieces that a skill yields; patches are said through the context, in their place among the others."""
    found: list[Piece] = []
    for piece in pieces:
        if isinstance(piece, list):
            await context.patch(piece)
        else:
            found.append(piece)
    return found


def _structured(output: Any) -> dict[str, Any] | None:
    """The output of the last node as the task's data; a value that is no object stands under `output`."""
    if output is None or isinstance(output, str | Response):
        return None
    value = _json("the output of the last node", output)
    return value if isinstance(value, dict) else {"output": value}


def _end(output: Any, task_context: TaskContext) -> Response:
    if isinstance(output, Response) and output.state is not TaskState.WORKING:
        return Response(output.text, output.status, _json("metadata", {**task_context.metadata, **(output.metadata or {})}))
    return Response(output if isinstance(output, str) else "", metadata=_json("metadata", task_context.metadata))


def _json(what: str, value: Any) -> Any:
    try:
        return to_jsonable_python(value)
    except ValueError as error:
        raise InvalidNodeOutput(f"{what} is no JSON: {error}") from None
