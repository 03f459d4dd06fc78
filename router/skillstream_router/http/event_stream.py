"""A task's events as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from enum import Enum
from functools import partial
from typing import Any, Self

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from skillstream.breaking_off import break_off
from skillstream.entries import Entry
from skillstream.task import Task
from skillstream_schemas.errors import SkillstreamError
from skillstream_schemas.event import ResetEvent
from skillstream_schemas.ids import EventId

from .face import Face
from .gateway import Gateway

_WRITE_CHARS = 64 * 1024
"""What is written at once: more would wait in memory for a slow reader."""
_HEADERS = {"cache-control": "no-cache, no-transform", "x-accel-buffering": "no"}


_SEPARATORS = [(char.encode(), f"\\u{ord(char):04x}".encode()) for char in "\x85\u2028\u2029"]
"""JSON may hold them as they are, and readers that split lines as Unicode does would break an event there."""


class End(Enum):
    """Why a stream of events ended."""

    DONE = "done"
    LEFT = "left"
    STOPPING = "stopping"


class EventStream(Response):
    """Responsible for one follower: writes at once what came in since its last write, keeps the line alive, ends behind
    the final.

    `stopping` is set when the gateway stops; `left` is called where the reader leaves before the end. A slow reader holds
    up its own reading alone: nothing is fetched for it while it takes nothing.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        task: Task,
        after: EventId,
        face: Face,
        *,
        keep_alive_s: float,
        stopping: asyncio.Event,
        left: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.status_code = 200
        self.background = None
        self.init_headers({**_HEADERS, "x-task-id": task.id})
        self._task = task
        self._after = after
        self._face = face
        self._keep_alive_s = keep_alive_s
        self._stopping = stopping
        self._left = left
        self._silent = False
        self._is_sending = False

    @classmethod
    def answering(cls, request: Request, task: Task, after: EventId, face: Face, *, abandons: bool) -> Self:
        """The stream that answers a request; with `abandons` a reader that leaves cancels the task."""
        state = request.app.state
        gateway: Gateway = state.gateway
        left = partial(gateway.abandon, task) if abandons else None
        return cls(task, after, face, keep_alive_s=gateway.settings.http_keep_alive_s, stopping=state.stopping, left=left)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request with the stream."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        work = [asyncio.ensure_future(part) for part in (self._write(send), disconnected(receive), self._stopping.wait())]
        try:
            end = await self._until_end(work, send)
        finally:
            await break_off(*work)
        if end is not End.LEFT:
            last = self._face.cut() if end is End.STOPPING else b""  # texts of ours alone
            await send({"type": "http.response.body", "body": last, "more_body": False})
        elif self._left is not None:
            await self._left()

    async def _until_end(self, work: Sequence[asyncio.Future[Any]], send: Send) -> End:
        writing, leaving, _ = work
        while True:
            done, _ = await asyncio.wait(work, timeout=self._keep_alive_s, return_when=asyncio.FIRST_COMPLETED)
            if writing in done:
                writing.result()
                return End.DONE
            if done:
                return End.LEFT if leaving in done else End.STOPPING
            if not self._is_sending:  # a reader that takes nothing is let go with its connection
                if self._silent:
                    await self._send(send, self._face.keep_alive)
                self._silent = True

    async def _write(self, send: Send) -> None:
        prefix = self._face.opening  # goes with the first events: each write is a system call
        try:
            async with aclosing(self._task.batches(self._after)) as batches:
                async for batch in batches:
                    for blocks in self._blocks(batch):
                        await self._send(send, prefix + blocks)
                        prefix = b""
        except SkillstreamError as error:
            await self._send(send, self._face.failure(error))

    async def _send(self, send: Send, body: bytes) -> None:
        for raw, escaped in _SEPARATORS:
            body = body.replace(raw, escaped)
        self._is_sending, self._silent = True, False
        await send({"type": "http.response.body", "body": body, "more_body": True})
        self._is_sending = False

    def _blocks(self, batch: list[Entry | ResetEvent]) -> Iterator[bytes]:
        """What is written for a batch, in few writes; raises the face's error behind what stands before it."""
        blocks: list[str] = []
        size = 0
        for item in batch:
            try:
                blocks.append(self._face.told(item))
            except SkillstreamError:
                if size:
                    yield "".join(blocks).encode()
                raise
            size += len(blocks[-1])
            if size > _WRITE_CHARS:
                yield "".join(blocks).encode()
                blocks, size = [], 0
        if size:
            yield "".join(blocks).encode()


async def disconnected(receive: Receive) -> None:
    """Waits until the caller has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
