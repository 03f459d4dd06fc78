"""Messages of OpenAI's clients as what a skill gets: the last one is the message, those before are history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, JsonValue

from skillstream_schemas.errors import InvalidRequest
from skillstream_schemas.request import HistoryMessage

_TEXTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
"""Types of parts that are text, and the field that holds it."""


class Part(BaseModel):
    """A piece of a message; those that are no text (images, audio, files) reach the skill as they are."""

    model_config = ConfigDict(extra="allow")

    type: str


class Message(BaseModel):
    """One message, of chat completions or of the input of a response."""

    model_config = ConfigDict(extra="allow")

    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[Part] | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """What a run is asked: `data` holds the message's parts where some are no text, `instructions` the system's words."""

    message: str
    history: list[HistoryMessage]
    instructions: str | None
    data: JsonValue


def turn_of(messages: Sequence[Message], param: str) -> Turn:
    """Reads a conversation; raises InvalidRequest, which names the field `param`.

    System and developer messages become the instructions: a skill has its own, and decides what a caller's are worth.
    """
    instructions = [_text(message, param) for message in messages if message.role in ("system", "developer")]
    turns = [message for message in messages if message.role in ("user", "assistant")]
    if not turns or turns[-1].role != "user":
        raise InvalidRequest(f"{param}: the last message is the user's")
    history: list[HistoryMessage] = []
    for message in turns[:-1]:
        if _others(message):
            raise InvalidRequest(f"{param}: only the last message may have parts that are no text")
        if text := _text(message, param):
            history.append(HistoryMessage(role="user" if message.role == "user" else "agent", text=text))
    last = turns[-1]
    if last.content is None:
        raise InvalidRequest(f"{param}: the last message has no content")
    data: Any = {"content": [part.model_dump() for part in last.content]} if _others(last) else None  # type: ignore[union-attr]
    return Turn(_text(last, param), history, "\n\n".join(filter(None, instructions)) or None, data)


def _text(message: Message, param: str) -> str:
    if not isinstance(message.content, list):
        return message.content or ""
    return "\n".join(_text_of(part, param) for part in message.content if part.type in _TEXTS)


def _text_of(part: Part, param: str) -> str:
    field = _TEXTS[part.type]
    text = (part.model_extra or {}).get(field)
    if not isinstance(text, str):
        raise InvalidRequest(f"{param}: a part of type {part.type} has no text in {field!r}")
    return text


def _others(message: Message) -> bool:
    return isinstance(message.content, list) and any(part.type not in _TEXTS for part in message.content)
