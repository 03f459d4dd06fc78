"""Responses as objects: what was asked, how it stands, what came out."""

from __future__ import annotations

from typing import Any

from skillstream_router.http.gateway import Standing
from skillstream_router.store import TaskRecord
from skillstream_schemas.errors import FailureCode, UnknownTask
from skillstream_schemas.event import FinalEvent
from skillstream_schemas.ids import EventId, is_name
from skillstream_schemas.request import TaskRequest
from skillstream_schemas.state import TaskState

from .model_name import model_name
from .text_face import spoken_text
from .usage import response_usage

_PREFIX = "resp_"
_OURS = ("instructions", "parameters")
"""Keys of a task's metadata that are not the caller's own."""


def response_id(task_id: str) -> str:
    """The id of the response that a task gives."""
    return f"{_PREFIX}{task_id}"


def task_of(response: str) -> str:
    """The task of a response's id; raises UnknownTask."""
    task_id = response.removeprefix(_PREFIX)
    if task_id == response or not is_name(task_id):
        raise UnknownTask(f"response {response[:140]!r}")
    return task_id


def head_of(task_id: str, request: TaskRequest, submitted_at: int) -> dict[str, Any]:
    """What is true of a response from its submission on; `submitted_at` is unix ms."""
    metadata = request.metadata or {}
    instructions = metadata.get("instructions")
    return {
        "id": response_id(task_id), "object": "response", "created_at": submitted_at // 1000,
        "model": model_name(request.agent, request.skill),
        "instructions": instructions if isinstance(instructions, str) else None,
        "metadata": {name: value for name, value in metadata.items() if name not in _OURS and isinstance(value, str)},
        "previous_response_id": None if request.follows is None else response_id(request.follows),
        "conversation": None if request.context_id is None else {"id": request.context_id},
        "parallel_tool_calls": False, "tool_choice": "none", "tools": [], "temperature": None, "top_p": None,
    }  # fmt: skip


def going_on(head: dict[str, Any], status: str) -> dict[str, Any]:
    """A response without an end yet: `queued` or `in_progress`."""
    return {**head, "status": status, "error": None, "incomplete_details": None, "output": [], "usage": None}


def ended(head: dict[str, Any], task_id: str, final: FinalEvent) -> dict[str, Any]:
    """A response at its end. A question back to the user is a completed response."""
    status, error, why = "failed", None, None
    if final.state in (TaskState.COMPLETED, TaskState.INPUT_REQUIRED):
        status = "completed"
    elif final.state is TaskState.CANCELED:
        status = "cancelled"
    elif final.error == FailureCode.OUTPUT_TOO_LARGE:
        status, why = "incomplete", {"reason": "max_output_tokens"}
    else:
        # the codes of errors in responses are a closed list
        error = {"code": "server_error", "message": f"{final.error}: {final.reason or 'the run failed'}"}
    text = spoken_text(final)
    item = output_item(task_id, "completed" if status == "completed" else "incomplete", text)
    whole = {
        **head, "status": status, "error": error, "incomplete_details": why,
        "output": [item] if text or status == "completed" else [], "usage": response_usage(final.usage),
    }  # fmt: skip
    if status == "completed":
        whole["completed_at"] = final.at // 1000
    return whole


def output_item(task_id: str, status: str, text: str | None) -> dict[str, Any]:
    """The one message that a response's output is; None is a text that has not begun."""
    content = [] if text is None else [text_part(text)]
    return {"id": f"msg_{task_id}", "type": "message", "role": "assistant", "status": status, "content": content}


def text_part(text: str) -> dict[str, Any]:
    """The one part of that message."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def of_standing(standing: Standing) -> dict[str, Any]:
    """The response of a task whose stream is on the broker."""
    task_id = standing.task.id
    head = head_of(task_id, standing.request, standing.submitted_at)
    if standing.final is not None:
        return ended(head, task_id, standing.final)
    return going_on(head, "queued" if standing.top.attempt == 0 else "in_progress")


def of_record(record: TaskRecord, text: str) -> dict[str, Any]:
    """The response of a task that only the database knows still."""
    head = head_of(record.id, record.original_request(), record.submitted_at)
    if not record.state.is_final:
        return going_on(head, "in_progress")
    shown = record.shown()
    final = FinalEvent(
        id=EventId.parse(record.last_event_id), at=record.finished_at or record.submitted_at, state=record.state, text=text,
        data=shown["data"], metadata={}, error=record.error, reason=record.reason, usage=shown["usage"], chunks=0,
    )  # fmt: skip
    return ended(head, record.id, final)
