"""One WebSocket: calls that come, and frames of the tasks that it follows."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from skillstream.breaking_off import break_off
from skillstream.task import Task
from skillstream_router.json_rpc import METHOD_NOT_FOUND, SERVER_ERROR
from skillstream_schemas.errors import SkillstreamError
from skillstream_schemas.ids import START, EventId
from skillstream_schemas.state import TaskState

from .caller import Caller
from .frames import Form, frame_of
from .gateway import Gateway
from .rpc import Call, RpcError, error_text, notification_text, read_call, result_text
from .socket_calls import Cancel, Execute, Follow, read

NORMAL, GOING_AWAY, POLICY, INTERNAL = 1000, 1001, 1008, 1011
_MOST_AT_ONCE = 256
"""Tasks followed, and calls under way, on one socket."""
_MOST_ERRORS = 20
"""Frames that are no JSON-RPC until the socket is closed."""


class SocketSession:
    """Responsible for one socket: answers each call, sends the frames of each task in order, ends with the socket.

    With `only`, it follows that task alone, from behind a cursor, and closes the socket behind its final. A reader that
    leaves ends nothing, but for tasks that were asked for so.
    """

    def __init__(self, socket: WebSocket, gateway: Gateway, caller: Caller, form: Form, stopping: asyncio.Event) -> None:
        self._socket = socket
        self._gateway = gateway
        self._caller = caller
        self._form = form
        self._stopping = stopping
        self._work: set[asyncio.Task[None]] = set()
        self._to_abandon: dict[str, Task] = {}
        self._errors = 0

    async def run(self, *, only: tuple[Task, EventId] | None = None, abandon: bool = False) -> None:
        """Serves the socket, which is accepted, until it or the gateway closes."""
        stopping = asyncio.ensure_future(self._stopping.wait())
        endings: list[asyncio.Future[Any]] = [asyncio.ensure_future(self._receive()), stopping]
        if only is not None:
            if abandon:
                self._to_abandon[only[0].id] = only[0]
            endings.append(asyncio.ensure_future(self._follow(*only)))
        try:
            done, _ = await asyncio.wait(endings, return_when=asyncio.FIRST_COMPLETED)
            await self._close(GOING_AWAY if stopping in done else done.pop().result())
        finally:
            await break_off(*endings, *self._work)
        if stopping not in done:
            for task in self._to_abandon.values():
                await self._gateway.abandon(task)

    async def _receive(self) -> int:
        """Takes calls until the socket is gone; returns the code to close it with."""
        while self._errors < _MOST_ERRORS:
            try:
                message = await self._socket.receive()
                if message["type"] == "websocket.disconnect":
                    return NORMAL
                text = message.get("text")
                call = read_call(text if text is not None else message["bytes"].decode(errors="replace"))
            except RpcError as error:
                self._errors += 1
                await self._send(error_text(error, error.rpc_id))
            except WebSocketDisconnect:
                return NORMAL
            else:
                if call is not None:
                    await self._start(call)
        return POLICY

    async def _start(self, call: Call) -> None:
        if len(self._work) >= _MOST_AT_ONCE:
            error = RpcError(SERVER_ERROR, f"{_MOST_AT_ONCE} tasks and calls at once are all that a socket may have")
            await self._send(error_text(error, call.id))
            return
        task = asyncio.get_running_loop().create_task(self._answer(call))
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _answer(self, call: Call) -> None:
        try:
            result, following = await self._carry_out(call)
        except (RpcError, SkillstreamError) as error:
            if call.id is not None:
                await self._send(error_text(error, call.id))
            return
        if call.id is not None and result is not None:
            await self._send(result_text(call.id, result))
        if following is not None:
            await self._follow(*following)

    async def _carry_out(self, call: Call) -> tuple[dict[str, Any] | None, tuple[Task, EventId] | None]:
        match call.method:
            case "heartbeat":
                await self._send(notification_text("heartbeat_ack", {}))
                return {}, None
            case "task.execute":
                return await self._execute(read(Execute, call.params))
            case "task.follow":
                follow = read(Follow, call.params)
                standing = await self._gateway.standing(self._caller, follow.task_id)
                return {"task_id": follow.task_id}, (standing.task, EventId.parse(follow.after))
            case "task.cancel":
                cancel = read(Cancel, call.params)
                final = await self._gateway.cancel(self._caller, cancel.task_id, cancel.reason)
                state = TaskState.WORKING if final is None else final.state
                return {"task_id": cancel.task_id, "state": state.value}, None
            case _:
                raise RpcError(METHOD_NOT_FOUND, f"there is no method {call.method[:100]!r} here")

    async def _execute(self, execute: Execute) -> tuple[dict[str, Any], tuple[Task, EventId]]:
        cards = {} if execute.skill is not None else {card.name: card for card in await self._gateway.agents(self._caller)}
        task = await self._gateway.submit(self._caller, execute.order(cards.get(execute.agent)))
        if execute.cancel_on_disconnect:
            self._to_abandon[task.id] = task
        return {"task_id": task.id, "state": TaskState.SUBMITTED.value}, (task, START)

    async def _follow(self, task: Task, after: EventId) -> int:
        """Sends a task's frames; returns the code that says how it went, for a socket that is the task's alone."""
        try:
            async with aclosing(task.batches(after)) as batches:
                async for batch in batches:
                    for item in batch:
                        frame = frame_of(task.id, item, self._form)
                        if frame is not None:
                            await self._send(frame)
        except SkillstreamError as error:
            await self._send(error_text(error))
            return INTERNAL
        self._to_abandon.pop(task.id, None)
        return NORMAL

    async def _send(self, text: str) -> None:
        with suppress(WebSocketDisconnect, RuntimeError):  # it is gone: `_receive` hears so too
            await self._socket.send_text(text)

    async def _close(self, code: int) -> None:
        with suppress(WebSocketDisconnect, RuntimeError):
            await self._socket.close(code)
