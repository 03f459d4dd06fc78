"""Whether this gateway can do its work, for supervisors and load balancers; asks for no key."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from starlette.responses import JSONResponse

from skillstream_router.http.gateway import Gateway
from skillstream_schemas.errors import SkillstreamError

router = APIRouter(tags=["health"])


@router.get("/healthz", responses={503: {"description": "Broker or database cannot be reached"}})
async def healthz(request: Request) -> Response:
    """Broker and database answer."""
    gateway: Gateway = request.app.state.gateway
    try:
        await gateway.check_health()
    except (SkillstreamError, TimeoutError) as error:
        code = error.code if isinstance(error, SkillstreamError) else "broker_unavailable"
        return JSONResponse({"status": "unavailable", "code": code}, 503)
    return JSONResponse({"status": "ok"})
