"""Tasks: submit, look, follow, cancel, and tokens to follow."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Header, Query, Request, Response
from starlette.responses import JSONResponse, StreamingResponse

from skillstream_router.http.authentication import Authenticator, CallerOf
from skillstream_router.http.event_stream import EventStream
from skillstream_router.http.face import NativeFace
from skillstream_router.http.gateway import Gateway
from skillstream_router.http.orders import CancelOrder, TaskAnswer, TaskOrder, TokenAnswer, TokenOrder
from skillstream_schemas.ids import START, EventId, check_name

router = APIRouter(prefix="/v1/tasks", tags=["tasks"])

_STREAM: dict[int | str, dict[str, Any]] = {
    200: {"description": "Events, each with its id and one JSON object", "content": {"text/event-stream": {}}},
    204: {"description": "The cursor is the final: nothing follows, a browser need not come back"},
}


@router.post("", status_code=202, response_model=TaskAnswer, responses={200: _STREAM[200]})
async def submit(order: TaskOrder, request: Request, caller: CallerOf) -> Response:
    """Queue a task; with `stream` the answer is its events."""
    gateway: Gateway = request.app.state.gateway
    task = await gateway.submit(caller, order)
    if order.stream:
        if order.task_id is not None:  # it may have run long ago
            await gateway.standing(caller, task.id)
        return EventStream.answering(request, task, START, NativeFace(), abandons=order.cancel_on_disconnect)
    location = {"location": f"/v1/tasks/{task.id}", "x-task-id": task.id}
    return JSONResponse(await gateway.describe(caller, task.id), 202, location)


@router.get("/{task_id}", response_model=TaskAnswer)
async def show(task_id: str, request: Request, caller: CallerOf) -> Response:
    """The task as it stands."""
    gateway: Gateway = request.app.state.gateway
    return JSONResponse(await gateway.describe(caller, check_name(task_id, "the task id")))


@router.get("/{task_id}/events", response_class=StreamingResponse, responses=_STREAM)
async def events(
    task_id: str,
    request: Request,
    caller: CallerOf,
    after: Annotated[str | None, Query(description="Id of the last event that is known already.")] = None,
    last_event_id: Annotated[str | None, Header(description="The same, as browsers say it; it wins.")] = None,
    cancel_on_disconnect: Annotated[bool, Query(description="A reader that leaves cancels the task.")] = False,
) -> Response:
    """Follow a task from any event on, live or over, to its final."""
    gateway: Gateway = request.app.state.gateway
    cursor = EventId.parse(last_event_id or after or "0")
    standing = await gateway.standing(caller, check_name(task_id, "the task id"))
    if standing.final is not None and cursor == standing.top:
        return Response(status_code=204)
    abandons = cancel_on_disconnect and caller.may_write
    return EventStream.answering(request, standing.task, cursor, NativeFace(), abandons=abandons)


@router.post("/{task_id}/cancel", response_model=TaskAnswer, responses={202: {"description": "Asked for, not ended yet"}})
async def cancel(
    task_id: str, request: Request, caller: CallerOf, order: Annotated[CancelOrder | None, Body()] = None
) -> Response:
    """Cancel a task, queued or running; the answer shows how it ended, which another end may have come before."""
    gateway: Gateway = request.app.state.gateway
    order = order or CancelOrder()
    final = await gateway.cancel(caller, check_name(task_id, "the task id"), order.reason, order.timeout_s)
    return JSONResponse(await gateway.describe(caller, task_id), 202 if final is None else 200)


@router.post("/{task_id}/token", response_model=TokenAnswer)
async def read_token(
    task_id: str, request: Request, caller: CallerOf, order: Annotated[TokenOrder | None, Body()] = None
) -> Response:
    """A token with which a browser may follow this task for a while: `?token=` or `Authorization: Bearer`."""
    gateway: Gateway = request.app.state.gateway
    authenticator: Authenticator = request.app.state.authenticator
    gateway.check_may_write(caller)
    standing = await gateway.standing(caller, check_name(task_id, "the task id"))
    token, expires_at = authenticator.token(caller, task_id, standing.submitted_at, (order or TokenOrder()).ttl_s)
    return JSONResponse({"token": token, "expires_at": expires_at})
