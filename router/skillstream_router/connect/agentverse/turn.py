"""A message that somebody sent to one of our agents, as the bridge keeps it until it is answered."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, JsonValue
from uagents_core.contrib.protocols.chat import ChatMessage, MetadataContent, ResourceContent, TextContent

from .envelopes import Opened
from .identity import digest, stable_uuid


class Turn(BaseModel):
    """One message and the task that it becomes; `streams` counts the streams that were opened to answer it,
    and `is_open` says whether the last of them still is."""

    model_config = ConfigDict(frozen=True)

    sender: str
    session: UUID
    msg_id: UUID
    message: str = ""
    data: list[JsonValue] = []
    metadata: dict[str, str] = {}
    task_id: str
    context_id: str
    received_at: int
    submitted: bool = False
    streams: int = 0
    is_open: bool = False

    @property
    def delivery(self) -> str:
        """The id of this message among what is owed: the same message again has the same."""
        return digest(self.sender, self.msg_id)

    @property
    def lane(self) -> tuple[str, UUID]:
        """What is answered in order: one open stream per sender and session."""
        return self.sender, self.session

    def stream_id(self, number: int) -> UUID:
        """The id of the answer's stream with this number."""
        return stable_uuid(self.task_id, "stream", number)

    def ended(self) -> Turn:
        """What a repetition needs to know."""
        return self.model_copy(update={"message": "", "data": [], "metadata": {}})


def turn_of(opened: Opened, message: ChatMessage, now_ms: int) -> Turn | None:
    """The turn that a message asks for; None for one that says nothing, such as the start of a session."""
    text = "\n".join(content.text for content in message.content if isinstance(content, TextContent))
    resources: list[Any] = []
    metadata: dict[str, str] = {}
    for content in message.content:
        if isinstance(content, ResourceContent):
            found = content.resource if isinstance(content.resource, list) else [content.resource]
            resources += [{"resource": {"uri": each.uri, **each.metadata}} for each in found]
        elif isinstance(content, MetadataContent):
            metadata |= content.metadata
    if not text and not resources:
        return None
    link = opened.agent.link
    return Turn(
        sender=opened.sender, session=opened.session, msg_id=message.msg_id, message=text, data=resources, metadata=metadata,
        task_id=f"chat-{digest(link, opened.sender, message.msg_id)}",
        # with the sender in it: a session's UUID alone must not open somebody else's conversation
        context_id=f"chat-{digest(link, opened.sender, opened.session)}", received_at=now_ms,
    )  # fmt: skip
