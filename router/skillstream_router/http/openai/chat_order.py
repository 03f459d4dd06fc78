"""What `POST /v1/chat/completions` takes."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from skillstream_router.http.orders import TaskOrder

from .messages import Message, turn_of
from .order import Order


class StreamOptions(BaseModel):
    """Options of a stream; others are for OpenAI's own models."""

    model_config = ConfigDict(extra="ignore")

    include_usage: bool | None = None


class ChatOrder(Order):
    """A chat completion to make."""

    messages: list[Message] = Field(min_length=1)
    stream_options: StreamOptions | None = None
    n: int | None = Field(default=None, ge=1, le=1, description="One run gives one answer.")

    @property
    def wants_usage(self) -> bool:
        """True if a stream shall tell usage."""
        return bool(self.stream_options and self.stream_options.include_usage)

    def order(self) -> TaskOrder:
        """The task to submit; raises InvalidRequest, UnknownAgent."""
        turn = turn_of(self.messages, "messages")
        return self.task_order(turn, turn.instructions)
