"""What callers send and get as JSON, beside events: checked here in shape, in content where they are carried out."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from skillstream_schemas.limits import MAX_DELAY_S
from skillstream_schemas.request import HistoryMessage
from skillstream_schemas.state import TaskState

CANCEL_S: float = 10
"""The answer to a cancellation waits so long for the task's end, where nothing else is asked for."""


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class TaskOrder(_Body):
    """A task to run; `stream` answers with its events instead of its record, until the final."""

    agent: str
    skill: str
    message: str
    task_id: str | None = Field(default=None, description="The same id with the same request again runs nothing twice.")
    context_id: str | None = Field(default=None, description="The conversation; yours once you named it first.")
    follows: str | None = Field(default=None, description="The task of the turn before.")
    payer: str | None = Field(default=None, description="Only on an open gateway: a key has its own.")
    sender_id: str | None = None
    deadline: datetime | None = Field(default=None, description="With a time zone; then the task ends as failed.")
    delay_s: float | None = Field(default=None, ge=0, le=MAX_DELAY_S, description="Seconds until it may start.")
    metadata: dict[str, JsonValue] | None = None
    data: JsonValue = None
    history: list[HistoryMessage] | None = Field(default=None, description="Instead of the context's own history.")
    traceparent: str | None = None
    stream: bool = False
    cancel_on_disconnect: bool = Field(default=False, description="With `stream`: a reader that leaves cancels the task.")


class CancelOrder(_Body):
    """Why a task is canceled, and how long the answer may wait for its end."""

    reason: str = ""
    timeout_s: float = Field(default=CANCEL_S, ge=0, le=60)


class TokenOrder(_Body):
    """How long a read token is good."""

    ttl_s: int = Field(default=600, ge=1, le=86_400)


class TokenAnswer(BaseModel):
    """A read token for one task; `expires_at` is unix ms."""

    token: str
    expires_at: int


class TaskAnswer(BaseModel):
    """A task as it stands; times are unix ms. What is not known yet, or was not given, is absent."""

    id: str
    state: TaskState
    agent: str
    skill: str
    attempt: int
    last_event_id: str
    submitted_at: int
    price_micros: int = 0
    context_id: str | None = None
    payer: str | None = None
    finished_at: int | None = None
    text: str | None = None
    data: Any = None
    metadata: dict[str, Any] | None = None
    usage: dict[str, Any] | None = None
    error: str | None = None
    reason: str | None = None


class MessageAnswer(BaseModel):
    """One turn of a conversation; `at` is unix ms."""

    id: int
    task_id: str
    role: str
    text: str
    at: int


class MessagesAnswer(BaseModel):
    """A page of a conversation, in the order in which its tasks ended.

    `next_after` is the cursor of the next page, absent at the end.
    """

    context_id: str
    messages: list[MessageAnswer]
    next_after: int | None = None


class SkillAnswer(BaseModel):
    """A skill and its price in micro-USD."""

    name: str
    description: str
    price_micros: int
    tags: list[str]
    examples: list[str]
    streaming: bool


class AgentAnswer(BaseModel):
    """An agent; `workers` counts those that announced themselves lately."""

    name: str
    description: str
    workers: int
    skills: list[SkillAnswer]


class AgentsAnswer(BaseModel):
    """All agents by name."""

    agents: list[AgentAnswer]
