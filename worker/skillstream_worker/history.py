"""What was said before in a task's context."""

from __future__ import annotations

import logging

from skillstream.broker import Broker
from skillstream_schemas.errors import MalformedEntry
from skillstream_schemas.event import FinalEvent, StatusEvent, event_from_fields
from skillstream_schemas.request import HistoryMessage, TaskRequest

log = logging.getLogger(__name__)


def has_history(request: TaskRequest) -> bool:
    """True where there may be messages before this task."""
    return request.context_id is not None or request.history is not None or request.follows is not None


async def conversation(broker: Broker, request: TaskRequest) -> list[HistoryMessage]:
    """Messages before this task, oldest first: those that the request brings, else the context's recent ones.

    The turn just before may not have reached the context's list yet; where the request names it (`follows`),
    its stream is read.
    """
    if request.history is not None:
        return list(request.history)
    messages = [] if request.context_id is None else await broker.context_messages(request.context_id)
    if request.follows is not None and all(message.task_id != request.follows for message in messages):
        messages += await _turn(broker, request.follows, request.context_id)
    return messages


async def _turn(broker: Broker, task_id: str, context_id: str | None) -> list[HistoryMessage]:
    try:
        ends = await broker.ends(task_id)
        if ends is None:
            return []
        first, last = (event_from_fields(*entry) for entry in ends)
    except MalformedEntry as error:
        log.warning("the turn before, task %s, cannot be read: %s", task_id, error)
        return []
    turn: list[HistoryMessage] = []
    if not isinstance(first, StatusEvent) or first.request is None or first.request.context_id != context_id:
        return []  # another conversation's words are not shown here
    turn.append(HistoryMessage(role="user", text=first.request.message, task_id=task_id))
    if isinstance(last, FinalEvent):
        turn.append(HistoryMessage(role="agent", text=last.text, task_id=task_id))
    return turn
