"""Responses, as OpenAI's clients create, find again, follow and cancel them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from starlette.responses import JSONResponse

from skillstream_router.http.authentication import CallerOf
from skillstream_router.http.event_stream import EventStream
from skillstream_router.http.gateway import Gateway, Standing
from skillstream_router.http.openai.ending import final_or_answer
from skillstream_router.http.openai.response_object import ended, head_of, of_record, of_standing, task_of
from skillstream_router.http.openai.response_order import ResponseOrder
from skillstream_router.http.openai.response_stream import ResponseFace
from skillstream_router.http.openai.sequence import cursor_of
from skillstream_schemas.gateway_errors import EventsGone
from skillstream_schemas.ids import START

router = APIRouter(prefix="/v1/responses", tags=["openai"])


@router.post("")
async def create(order: ResponseOrder, request: Request, caller: CallerOf) -> Response:
    """Run a skill on the last message; with `background` the answer does not wait for its end."""
    gateway: Gateway = request.app.state.gateway
    previous = order.previous_response_id
    before = None if previous is None else await gateway.standing(caller, task_of(previous))
    task = await gateway.submit(caller, order.order(before))
    standing = await gateway.standing(caller, task.id)
    abandons = order.skillstream.cancel_on_disconnect and not order.background
    if order.stream:
        face = ResponseFace(task.id, _head(standing), settled=standing.top.attempt, progress=order.skillstream.progress)
        return EventStream.answering(request, task, START, face, abandons=abandons)
    if order.background or standing.final is not None:
        return JSONResponse(of_standing(standing))
    final = await final_or_answer(task, request, is_named=order.skillstream.task_id is not None, abandons=abandons)
    return final if isinstance(final, Response) else JSONResponse(ended(_head(standing), task.id, final))


@router.get("/{response_id}")
async def retrieve(
    response_id: str,
    request: Request,
    caller: CallerOf,
    stream: bool = False,
    progress: Annotated[bool, Query(description="Progress of the skill too, in fields of our own.")] = False,
    starting_after: Annotated[int | None, Query(ge=0, description="Number of the last event that is known already.")] = None,
) -> Response:
    """The response as it stands, or its events behind a number, live or over."""
    gateway: Gateway = request.app.state.gateway
    task_id = task_of(response_id)
    try:
        standing = await gateway.standing(caller, task_id)
    except EventsGone:
        if stream:
            raise
        return JSONResponse(of_record(*await gateway.record(caller, task_id)))
    if not stream:
        return JSONResponse(of_standing(standing))
    after = starting_after or 0
    cursor = cursor_of(after, standing)
    given = await standing.task.length_at(cursor)
    settled = standing.top.attempt if cursor == START else 0
    face = ResponseFace(task_id, _head(standing), after=after, given=given, settled=settled, progress=progress)
    return EventStream.answering(request, standing.task, cursor, face, abandons=False)


@router.post("/{response_id}/cancel")
async def cancel(response_id: str, request: Request, caller: CallerOf) -> Response:
    """Cancel a response; the answer shows how it ended, which another end may have come before."""
    gateway: Gateway = request.app.state.gateway
    task_id = task_of(response_id)
    await gateway.cancel(caller, task_id, "canceled over the responses API")
    return JSONResponse(of_standing(await gateway.standing(caller, task_id)))


def _head(standing: Standing) -> dict[str, object]:
    return head_of(standing.task.id, standing.request, standing.submitted_at)
