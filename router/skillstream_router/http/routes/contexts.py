"""Conversations."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from starlette.responses import JSONResponse

from skillstream_router.http.authentication import CallerOf
from skillstream_router.http.gateway import Gateway
from skillstream_router.http.orders import MessagesAnswer

router = APIRouter(prefix="/v1/contexts", tags=["contexts"])


@router.get("/{context_id}/messages", response_model=MessagesAnswer)
async def messages(
    context_id: str,
    request: Request,
    caller: CallerOf,
    after: Annotated[int, Query(ge=0, lt=2**63, description="Id of the message behind which the page begins; 0: the first.")] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """The messages of a conversation in the order in which its tasks ended."""
    gateway: Gateway = request.app.state.gateway
    found, more = await gateway.messages(caller, context_id, after, limit)
    page: dict[str, Any] = {"context_id": context_id, "messages": [asdict(message) for message in found]}
    if more:
        page["next_after"] = found[-1].id
    return JSONResponse(page)
