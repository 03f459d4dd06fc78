"""What `POST /v1/responses` takes."""

from __future__ import annotations

from pydantic import BaseModel

from skillstream_router.http.gateway import Standing
from skillstream_router.http.orders import TaskOrder
from skillstream_schemas.errors import InvalidRequest
from skillstream_schemas.request import HistoryMessage

from .messages import Message, turn_of
from .order import Order
from .text_face import spoken_text


class ConversationName(BaseModel):
    """A conversation by its id: a context."""

    id: str


class ResponseOrder(Order):
    """A response to make."""

    input: str | list[Message]
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: str | ConversationName | None = None
    background: bool | None = None

    def order(self, previous: Standing | None) -> TaskOrder:
        """The task to submit, behind the previous response; raises InvalidRequest, UnknownAgent."""
        messages = [Message(role="user", content=self.input)] if isinstance(self.input, str) else self.input
        turn = turn_of(messages, "input")
        order = self.task_order(turn, "\n\n".join(filter(None, (self.instructions, turn.instructions))) or None)
        if previous is not None and self.conversation is not None:
            raise InvalidRequest("conversation: the previous response has one already, or none")
        if previous is not None:
            _go_on(order, previous, turn.history)
        elif self.conversation is not None:
            named = self.conversation if isinstance(self.conversation, str) else self.conversation.id
            _enter(order, named, turn.history)
        return order


def _go_on(order: TaskOrder, previous: Standing, more: list[HistoryMessage]) -> None:
    """Puts what was said up to the previous response before this one's own messages."""
    request, final = previous.request, previous.final
    if final is None:
        raise InvalidRequest("previous_response_id: that response has not ended")
    if request.history is None and request.context_id is not None:
        _enter(order, request.context_id, more)
        order.follows = previous.task.id
        return
    order.context_id = order.context_id or request.context_id
    said = [HistoryMessage(role="user", text=request.message), HistoryMessage(role="agent", text=spoken_text(final))]
    order.history = [*(request.history or ()), *said, *more]


def _enter(order: TaskOrder, context_id: str, more: list[HistoryMessage]) -> None:
    """Makes the context's own history the task's."""
    if more:
        raise InvalidRequest("input: a conversation has its history itself; send the new message alone")
    order.context_id, order.history = context_id, None
