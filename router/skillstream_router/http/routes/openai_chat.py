"""Chat completions, as OpenAI's clients ask for them."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from starlette.responses import JSONResponse

from skillstream.task import Task
from skillstream_router.http.authentication import CallerOf
from skillstream_router.http.event_stream import EventStream
from skillstream_router.http.gateway import Gateway
from skillstream_router.http.openai.chat_completion import ChatFace, completion, finish_reason
from skillstream_router.http.openai.chat_order import ChatOrder
from skillstream_router.http.openai.ending import ONCE, final_or_answer
from skillstream_router.http.openai.error_shape import run_error, run_status
from skillstream_schemas.ids import START

router = APIRouter(prefix="/v1/chat/completions", tags=["openai"])


@router.post("")
async def create(order: ChatOrder, request: Request, caller: CallerOf) -> Response:
    """Run a skill on the last message, and answer with its text or its chunks."""
    gateway: Gateway = request.app.state.gateway
    task = await gateway.submit(caller, order.order())
    created_ms, settled = gateway.now_ms, 0
    if order.skillstream.task_id is not None:  # it may have run, or run more than once
        standing = await gateway.standing(caller, task.id)
        created_ms, settled = standing.submitted_at, standing.top.attempt
    if not order.stream:
        return await _whole(order, request, task, created_ms // 1000)
    face = ChatFace(
        task.id, order.model, created_ms // 1000, settled=settled, usage=order.wants_usage, progress=order.skillstream.progress
    )
    return EventStream.answering(request, task, START, face, abandons=order.skillstream.cancel_on_disconnect)


async def _whole(order: ChatOrder, request: Request, task: Task, created_s: int) -> Response:
    ours = order.skillstream
    final = await final_or_answer(task, request, is_named=ours.task_id is not None, abandons=ours.cancel_on_disconnect)
    if isinstance(final, Response):
        return final
    headers = {"x-task-id": task.id}
    finish = finish_reason(final)
    if finish is None:
        return JSONResponse({"error": run_error(final)}, run_status(final), headers | ONCE)
    return JSONResponse(completion(task.id, order.model, created_s, final, finish), headers=headers)
