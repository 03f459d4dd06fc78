"""A task's events as JSON-RPC frames of a Society hub: `task.status` while it runs, `task.complete` at its end.

Nested, text stands in `status.message.parts`, as on the hub's wire; flat, in `state`, `text`, `final`, as its documentation
writes it. Both carry `event`, the id and type of the event: the cursor to come back with, and what tells text from progress.
"""

from __future__ import annotations

from enum import StrEnum
from json.encoder import encode_basestring as quoted
from typing import Any

from skillstream.entries import Entry
from skillstream_router.json_rpc import Frame, call_frame
from skillstream_router.society import (
    COMPLETE,
    STATUS,
    data_part,
    ending_metadata,
    progress_metadata,
    restart_metadata,
    task_params,
    text_part,
)
from skillstream_schemas.event import ChunkEvent, FinalEvent, ResetEvent, StatusEvent, event_from_fields
from skillstream_schemas.json_text import json_text
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
    params = _params(task_id, event, form)
    if params is None:
        return None
    suffix = f"reset-{event.attempt}" if isinstance(event, ResetEvent) else str(event.id)
    return json_text(call_frame(COMPLETE if isinstance(event, FinalEvent) else STATUS, params, f"{task_id}:{suffix}"))


def _params(task_id: str, event: StatusEvent | ChunkEvent | FinalEvent | ResetEvent, form: Form) -> Frame | None:
    state, data = TaskState.WORKING, None
    text: str | None
    match event:
        case ResetEvent():
            text, metadata, said = "", restart_metadata(event), {"type": "reset"}
        case ChunkEvent(mode=mode):
            text, data, metadata = event.text, event.data, {} if mode is None else {"mode": mode}
            said = {"id": str(event.id), "type": "chunk"}
        case StatusEvent(text=str() as text):
            metadata, said = progress_metadata(event), {"id": str(event.id), "type": "status"}
        case FinalEvent():
            state, text, data = event.state, event.text, event.data
            metadata, said = ending_metadata(event), {"id": str(event.id), "type": "final"}
        case _:
            return None
    if form is Form.FLAT:
        params = _flat(task_id, state, text, data, metadata)
    else:
        parts = [] if text is None else [text_part(text)]
        if data is not None:
            parts.append(data_part(said["id"], data))
        params = task_params(task_id, state, parts, metadata)
    params["event"] = said
    return params


def _flat(task_id: str, state: TaskState, text: str | None, data: Any, metadata: Frame) -> Frame:
    params: Frame = {"task_id": task_id, "state": state.value, "text": text or "", "final": state.is_final}
    if data is not None:
        params["data"] = data
    if metadata:
        params["metadata"] = metadata
    return params
