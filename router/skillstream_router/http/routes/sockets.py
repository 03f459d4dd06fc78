"""WebSockets: the frames of one task, and of all that are asked for."""

from __future__ import annotations

import secrets

from fastapi import APIRouter, WebSocket

from skillstream_router.http.authentication import Authenticator
from skillstream_router.http.caller import Caller
from skillstream_router.http.failures import answer
from skillstream_router.http.frames import Form
from skillstream_router.http.gateway import Gateway
from skillstream_router.http.rpc import notification_text
from skillstream_router.http.socket_session import SocketSession
from skillstream_schemas.errors import InvalidRequest, SkillstreamError
from skillstream_schemas.ids import EventId, check_name

router = APIRouter(tags=["sockets"])


@router.websocket("/v1/tasks/{task_id}/ws")
async def task_socket(socket: WebSocket, task_id: str) -> None:
    """The frames of one task, from `?after=` on; closes with 1000 behind its final."""
    gateway: Gateway = socket.app.state.gateway
    try:
        caller, form = await _caller(socket), _form(socket)
        after = EventId.parse(socket.query_params.get("after", "0"))
        standing = await gateway.standing(caller, check_name(task_id, "the task id"))
    except SkillstreamError as error:
        await _refuse(socket, error)
        return
    await socket.accept()
    abandon = socket.query_params.get("cancel_on_disconnect") == "true" and caller.may_write
    session = SocketSession(socket, gateway, caller, form, socket.app.state.stopping)
    await session.run(only=(standing.task, after), abandon=abandon)


@router.websocket("/v1/hub")
async def hub_socket(socket: WebSocket) -> None:
    """Many tasks on one socket: `task.execute`, `task.follow`, `task.cancel` in, `task.status` and `task.complete` out."""
    gateway: Gateway = socket.app.state.gateway
    try:
        caller, form = await _caller(socket), _form(socket)
        gateway.check_may_write(caller)
    except SkillstreamError as error:
        await _refuse(socket, error)
        return
    await socket.accept()
    await socket.send_text(notification_text("connection.established", {"connection_id": secrets.token_hex(8)}))
    await SocketSession(socket, gateway, caller, form, socket.app.state.stopping).run()


async def _refuse(socket: WebSocket, error: SkillstreamError) -> None:
    await socket.send_denial_response(answer(error))


async def _caller(socket: WebSocket) -> Caller:
    authenticator: Authenticator = socket.app.state.authenticator
    return await authenticator.caller(socket)


def _form(socket: WebSocket) -> Form:
    form = socket.query_params.get("form", Form.NESTED.value)
    try:
        return Form(form)
    except ValueError:
        raise InvalidRequest(f"form: {form[:20]!r} is neither nested nor flat") from None
