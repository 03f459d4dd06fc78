"""Waiting for a run's end on behalf of a caller who waits for the whole answer."""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from skillstream.breaking_off import break_off
from skillstream.task import Task
from skillstream_router.http.event_stream import disconnected
from skillstream_schemas.event import FinalEvent
from skillstream_schemas.gateway_errors import GatewayStopping


async def final_of(task: Task, request: Request) -> FinalEvent | None:
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
