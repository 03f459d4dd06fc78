"""The event of a chat: the request of OpenAI's chat completions, as far as a workflow reads it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self

from pydantic import BaseModel, Field, field_validator, model_validator


class ChatMessage(BaseModel):
    """A message: its role, and its text (of content given in parts, the text parts together)."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str

    @field_validator("content", mode="before")
    @classmethod
    def _join_parts(cls, content: Any) -> Any:
        if isinstance(content, list):
            return "".join(part.get("text") or "" for part in content if isinstance(part, dict) and part.get("type") == "text")
        return content


class OpenAIChatSchema(BaseModel):
    """A conversation that ends with what the user says now; other fields of the request are passed over."""

    messages: list[ChatMessage] = Field(min_length=1)
    model: str = "default"

    @model_validator(mode="after")
    def _ends_with_user(self) -> Self:
        if self.messages[-1].role != "user":
            raise ValueError("the last message is not the user's")
        return self

    @classmethod
    def from_message(cls, message: str, history: Sequence[dict[str, str]]) -> Self:
        """The event of a task: its message behind the conversation so far (`role` user or agent, `text`)."""
        turns = [{"role": "user" if turn["role"] == "user" else "assistant", "content": turn["text"]} for turn in history]
        return cls.model_validate({"messages": [*turns, {"role": "user", "content": message}]})

    def get_message(self) -> str:
        """What the user says now."""
        return self.messages[-1].content
