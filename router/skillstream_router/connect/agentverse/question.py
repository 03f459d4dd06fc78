"""A message of ours to a chat agent, and what it answers. No I/O."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from uagents_core.contrib.protocols.chat import ChatMessage

from skillstream_schemas.errors import InvalidRequest
from skillstream_schemas.request import describe

Line = dict[str, Any]


class AskRequest(BaseModel):
    """What a skill asks of the bridge: `speaker` (an agent of the bridge) says `text` to the chat agent at `to`.

    The same `msg_id` again, within a minute of the answer, gets the same answer without a second message. The answer is over
    with its stream or session, or `quiet_s` after a message outside of both; `timeout_s` bounds all of it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    speaker: str
    to: str = Field(pattern=r"^agent1[a-z0-9]{59}$")
    session: UUID
    msg_id: UUID
    text: str
    quiet_s: float = Field(default=1.0, gt=0, le=60)
    timeout_s: float = Field(default=120.0, gt=0, le=3600)

    @classmethod
    def read(cls, body: bytes) -> AskRequest:
        """Checks a request's body; raises InvalidRequest."""
        try:
            request = cls.model_validate_json(body)
        except ValidationError as error:
            raise InvalidRequest(describe(error)) from None
        if request.session.version != 4 or request.msg_id.version != 4:
            raise InvalidRequest("session and msg_id are UUIDs of version 4")
        return request


class Question:
    """Responsible for the answer to one message: lines as they come, kept so that who asks again reads them from the start.

    `failed` is True for one that ended without its answer: who asks again asks anew.
    """

    def __init__(self, request: AskRequest) -> None:
        self.request = request
        self.ended = asyncio.Event()
        self.failed = False
        self._lines: list[Line] = []
        self._changed = asyncio.Event()
        self._more: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._open_streams: set[UUID] = set()
        self._seen: set[UUID] = set()
        self._is_quiet_the_end = False

    def __repr__(self) -> str:
        return f"<Question to {self.request.to} lines={len(self._lines)} ended={self.ended.is_set()}>"

    def take(self, message: ChatMessage) -> None:
        """Takes a message of the answer, unless it came before."""
        if message.msg_id in self._seen:
            return
        self._seen.add(message.msg_id)
        for content in message.content:
            match content.type:
                case "text":
                    self._add({"text": content.text})
                    self._is_quiet_the_end = not self._open_streams
                case "resource":
                    self._add({"resource": [each.dict() for each in _listed(content.resource)]})
                    self._is_quiet_the_end = not self._open_streams
                case "metadata":
                    self._add({"metadata": content.metadata})
                case "start-stream":
                    self._open_streams.add(content.stream_id)
                    self._is_quiet_the_end = False
                case "end-stream":
                    self._open_streams.discard(content.stream_id)
                    self._is_quiet_the_end = not self._open_streams
                case "end-session":
                    self.end()
        self._changed.set()

    def end(self, error: Line | None = None) -> None:
        """Ends the answer; twice is safe."""
        if not self.ended.is_set():
            self.failed = error is not None
            self.ended.set()
            self._add({"end": True} if error is None else {"error": error})
            self._changed.set()

    async def until_quiet(self) -> None:
        """Returns once the answer is over by itself: nothing came for `quiet_s` where nothing has to come."""
        while not self.ended.is_set():
            self._changed.clear()
            waiting_s = self.request.quiet_s if self._is_quiet_the_end else None
            try:
                async with asyncio.timeout(waiting_s):
                    await self._changed.wait()
            except TimeoutError:
                return

    async def lines(self) -> AsyncIterator[Line]:
        """All lines from the first on, to the last."""
        place = 0
        while True:
            while place < len(self._lines):
                yield self._lines[place]
                place += 1
            if self.ended.is_set():
                return
            await asyncio.shield(self._more)

    def _add(self, line: Line) -> None:
        self._lines.append(line)
        more, self._more = self._more, asyncio.get_running_loop().create_future()
        more.set_result(None)


def _listed(resource: Any) -> list[Any]:
    return resource if isinstance(resource, list) else [resource]
