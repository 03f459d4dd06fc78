"""What callers ask over a WebSocket, as models."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from skillstream_schemas.card import AgentCard
from skillstream_schemas.errors import InvalidRequest
from skillstream_schemas.request import describe

from .orders import TaskOrder

_Id = Annotated[str, Field(min_length=1, max_length=128)]
M = TypeVar("M", bound=BaseModel)


class _Params(BaseModel):
    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)


class Part(_Params):
    """A piece of a message: text, or structured data."""

    type: Literal["text", "data"]
    text: str = ""
    data: JsonValue = None


class Message(_Params):
    """What a user says, in parts."""

    parts: list[Part]


class Execute(_Params):
    """`task.execute`: `id` is the task's id, `sessionId` its context; the agent, and the skill where it has several."""

    agent: str
    skill: str | None = None
    id: _Id | None = None
    session_id: _Id | None = Field(default=None, alias="sessionId")
    message: Message
    metadata: dict[str, JsonValue] | None = None
    payer: str | None = None
    cancel_on_disconnect: bool = False

    def order(self, card: AgentCard | None) -> TaskOrder:
        """The task to submit; without a skill it is the agent's only one, the one called `chat`, or its first."""
        skill = self.skill
        if skill is None:
            names = [each.name for each in card.skills] if card is not None else []
            skill = "chat" if "chat" in names else next(iter(names), "chat")
        return TaskOrder(
            agent=self.agent,
            skill=skill,
            message="\n".join(part.text for part in self.message.parts if part.type == "text"),
            data=[part.data for part in self.message.parts if part.type == "data"] or None,
            task_id=self.id,
            context_id=self.session_id,
            metadata=self.metadata,
            payer=self.payer,
        )


class Follow(_Params):
    """`task.follow`: a task of the caller's, from behind an event on."""

    task_id: _Id
    after: str = "0"


class Cancel(_Params):
    """`task.cancel`."""

    task_id: _Id
    reason: str = ""


def read(model: type[M], params: dict[str, Any]) -> M:
    """Checks a call's parameters; raises InvalidRequest."""
    try:
        return model.model_validate(params)
    except ValidationError as error:
        raise InvalidRequest(describe(error)) from None
