"""What a Society hub's `task.status` and `task.complete` hold, whoever sends them: text in parts, and metadata beside it."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import JsonValue

from skillstream_schemas.event import FinalEvent, ResetEvent, StatusEvent
from skillstream_schemas.state import TaskState

from .json_rpc import Frame

STATUS, COMPLETE = "task.status", "task.complete"


def task_params(task_id: str, state: TaskState, parts: Sequence[Frame], metadata: Frame) -> Frame:
    """The parameters of both; metadata that is empty is left out."""
    params: Frame = {
        "task_id": task_id,
        "status": {"state": state.value, "message": {"role": "agent", "parts": list(parts)}},
        "final": state.is_final,
    }
    if metadata:
        params["metadata"] = metadata
    return params


def text_part(text: str) -> Frame:
    """A piece of text."""
    return {"type": "text", "text": text}


def data_part(part_id: str, payload: JsonValue) -> Frame:
    """Structured content; a part replaces the one before it of the same id."""
    return {"type": "data", "data": {"component": "artifact", "id": part_id, "payload": payload}}


def progress_metadata(event: StatusEvent) -> Frame:
    """What stands beside the text of a progress report."""
    return {**(event.metadata or {}), **({} if event.progress is None else {"progress": event.progress})}


def restart_metadata(event: ResetEvent) -> Frame:
    """What tells of a newer attempt: nothing on this wire takes text back, the completion has the whole text."""
    return {"code": "attempt_restarted", "attempt": event.attempt, "keep": event.keep}


def ending_metadata(final: FinalEvent) -> Frame:
    """The final's metadata, and why and at what cost it ended."""
    more = {"error": final.error, "reason": final.reason, "usage": final.usage}
    return {**final.metadata, **{name: value for name, value in more.items() if value is not None}}
