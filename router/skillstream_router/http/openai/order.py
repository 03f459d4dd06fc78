"""What a request of OpenAI's clients asks for, as the task to submit."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from skillstream_router.http.orders import TaskOrder
from skillstream_schemas.errors import InvalidRequest
from skillstream_schemas.request import describe

from .extension import Extension
from .messages import Turn
from .model_name import split_model


class Order(BaseModel):
    """What chat completions and responses have in common.

    Fields that are not named go to the skill, in `metadata["parameters"]`.
    """

    model_config = ConfigDict(extra="allow", allow_inf_nan=False)

    model: str = Field(description="AGENT/SKILL")
    stream: bool | None = None
    user: str | None = None
    metadata: dict[str, JsonValue] | None = None
    skillstream: Extension = Extension()

    def task_order(self, turn: Turn, instructions: str | None) -> TaskOrder:
        """The task to submit; raises InvalidRequest, UnknownAgent."""
        agent, skill = split_model(self.model)
        metadata: dict[str, Any] = dict(self.metadata or {})
        if instructions is not None:
            metadata["instructions"] = instructions
        if self.model_extra:
            metadata["parameters"] = self.model_extra
        try:
            return TaskOrder(
                agent=agent,
                skill=skill,
                message=turn.message,
                history=turn.history,
                data=turn.data,
                metadata=metadata or None,
                sender_id=self.user or None,
                task_id=self.skillstream.task_id,
                context_id=self.skillstream.context_id,
                payer=self.skillstream.payer,
            )
        except ValidationError as error:
            raise InvalidRequest(describe(error)) from None
