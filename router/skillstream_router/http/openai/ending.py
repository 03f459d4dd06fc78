"""Waiting for a run's end on behalf of a caller who waits for the whole answer."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from skillstream.breaking_off import break_off
from skillstream.task import Task
from skillstream_router.http.event_stream import disconnected
from skillstream_router.http.failures import answer
from skillstream_router.http.gateway import Gateway
from skillstream_schemas.errors import SkillstreamError
from skillstream_schemas.event import FinalEvent
from skillstream_schemas.gateway_errors import GatewayStopping

ONCE = {"x-should-retry": "false"}
"""The run was paid for or has its outcome: OpenAI's clients, which repeat what failed, would start another."""
_LEFT = 499


async def final_or_answer(task: Task, request: Request, *, is_named: bool, abandons: bool) -> FinalEvent | Response:
    """The task's final, or what is answered where it cannot be waited for, and to a caller who left.

    With `is_named` the caller gave the task its id: who repeats the request finds the same run. With `abandons` a caller
    who leaves cancels the task.
    """
    try:
        final = await _final_of(task, request)
    except SkillstreamError as error:
        refused = answer(error, request.url.path)
        refused.headers.update({"x-task-id": task.id} | ({} if is_named else ONCE))
        return refused
    if final is not None:
        return final
    if abandons:
        gateway: Gateway = request.app.state.gateway
        await gateway.abandon(task)
    return Response(status_code=_LEFT)


async def _final_of(task: Task, request: Request) -> FinalEvent | None:
    """The task's final, None where the caller left before.

    Raises GatewayStopping, StreamLost, BrokerUnavailable; whatever ends the waiting, the run goes on.
    """
    stopping: asyncio.Event = request.app.state.stopping
    result, leaving = asyncio.ensure_future(task.result()), asyncio.ensure_future(disconnected(request.receive))
    stop = asyncio.ensure_future(stopping.wait())
    work = (result, leaving, stop)
    try:
        await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
        if result.done():
            return result.result()
        if leaving.done():
            return None
        raise GatewayStopping
    finally:
        await break_off(*work)
