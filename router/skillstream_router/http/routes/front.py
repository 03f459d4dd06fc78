"""What answers here, for whoever opens the address itself; asks for no key."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.responses import HTMLResponse

router = APIRouter(tags=["health"])

_PLACE = b'<div id="swagger-ui">'
_UNTIL_DRAWN = b"""
<p>This page is drawn by a script from cdn.jsdelivr.net. Where that cannot be reached, the same stands in
<a href="/openapi.json">/openapi.json</a>.</p>"""


@router.get("/")
async def front(request: Request) -> dict[str, str]:
    """Where to read on."""
    return {
        "name": "skillstream",
        "version": request.app.version,
        "docs": "/docs",
        "openapi": "/openapi.json",
        "tasks": "/v1/tasks",
        "agents": "/v1/agents",
        "openai": "/v1",
        "health": "/healthz",
    }


@router.get("/docs", include_in_schema=False)
async def docs(request: Request) -> HTMLResponse:
    """Every endpoint, for people; on a closed network where else to look, instead of FastAPI's empty page."""
    page = get_swagger_ui_html(openapi_url="/openapi.json", title=request.app.title, swagger_favicon_url="data:,")
    return HTMLResponse(bytes(page.body).replace(_PLACE, _PLACE + _UNTIL_DRAWN, 1))
