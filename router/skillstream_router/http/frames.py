"""A task's events as JSON-RPC frames of a Society hub: `task.status` while it runs, `task.complete` at its end.

Nested, text stands in `status.message.parts`, as on the hub's wire; flat, in `state`, `text`, `final`, as its documentation
writes it. Both carry `event`, the id and type of the event: the cursor to come back with, and what tells text from progress.
"""

from __future__ import annotations

import json
from enum import StrEnum
from json.encoder import encode_basestring as quoted
from typing import Any

from skillstream.broker import Entry
from skillstream_schemas.event import ChunkEvent, FinalEvent, ResetEvent, StatusEvent, event_from_fields
from skillstream_schemas.state import TaskState

from .event_json import is_text_chunk


class Form(StrEnum):
    """How a frame's parameters are laid out."""

    NESTED = "nested"
    FLAT = "flat"


def frame_of(task_id: str, item: Entry | ResetEvent, form: Form) -> str | None:
    """The frame of an event, as text; None for what has no place there: submission, openings, hand-backs.

    Its JSON-RPC id is the task's and the event's, so that a frame sent again has the same. Raises MalformedEntry.
    """
    if not isinstance(item, ResetEvent) and is_text_chunk(item[1]):
        event_id, fields = item
        text, place = quoted(fields["text"]), f'"event":{{"id":"{event_id}","type":"chunk"}}'
        if form is Form.FLAT:
            said = f'"state":"working","text":{text},"final":false'
        else:
            message = f'{{"role":"agent","parts":[{{"type":"text","text":{text}}}]}}'
            said = f'"status":{{"state":"working","message":{message}}},"final":false'
        return (
            f'{{"jsonrpc":"2.0","id":"{task_id}:{event_id}","method":"task.status",'
            f'"params":{{"task_id":"{task_id}",{said},{place}}}}}'
        )
    event = item if isinstance(item, ResetEvent) else event_from_fields(*item)
    params = _params(event, form)
    if params is None:
        return None
    suffix = f"reset-{event.attempt}" if isinstance(event, ResetEvent) else str(event.id)
    method = "task.complete" if isinstance(event, FinalEvent) else "task.status"
    return written({"jsonrpc": "2.0", "id": f"{task_id}:{suffix}", "method": method, "params": {"task_id": task_id, **params}})


def written(frame: dict[str, Any]) -> str:
    """A frame as text."""
    return json.dumps(frame, ensure_ascii=False, separators=(",", ":"))


def _params(event: StatusEvent | ChunkEvent | FinalEvent | ResetEvent, form: Form) -> dict[str, Any] | None:
    more: dict[str, Any]
    match event:
        case ResetEvent(attempt=attempt, keep=keep):
            # nothing on this wire takes text back: who accumulates looks here, and the completion has the whole text
            restarted = {"code": "attempt_restarted", "attempt": attempt, "keep": keep}
            return _laid_out(form, TaskState.WORKING, "", None, restarted, {"type": "reset"})
        case ChunkEvent(mode=mode, data=data):
            more = {} if mode is None else {"mode": mode}
            return _laid_out(form, TaskState.WORKING, event.text, data, more, {"id": str(event.id), "type": "chunk"})
        case StatusEvent(text=str() as text, progress=progress):
            more = {**(event.metadata or {}), **({} if progress is None else {"progress": progress})}
            return _laid_out(form, TaskState.WORKING, text, None, more, {"id": str(event.id), "type": "status"})
        case FinalEvent():
            ending = {"error": event.error, "reason": event.reason, "usage": event.usage}
            more = {**event.metadata, **{name: value for name, value in ending.items() if value is not None}}
            return _laid_out(form, event.state, event.text, event.data, more, {"id": str(event.id), "type": "final"})
        case _:
            return None


def _laid_out(
    form: Form, state: TaskState, text: str | None, data: Any, metadata: dict[str, Any], event: dict[str, str]
) -> dict[str, Any]:
    params: dict[str, Any]
    if form is Form.FLAT:
        params = {"state": state.value, "text": text or "", "final": state.is_final}
        if data is not None:
            params["data"] = data
    else:
        parts: list[dict[str, Any]] = [] if text is None else [{"type": "text", "text": text}]
        if data is not None:
            parts.append({"type": "data", "data": {"component": "artifact", "id": event.get("id", ""), "payload": data}})
        params = {"status": {"state": state.value, "message": {"role": "agent", "parts": parts}}, "final": state.is_final}
    if metadata:
        params["metadata"] = metadata
    params["event"] = event
    return params
