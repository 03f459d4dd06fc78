"""What answers here, for whoever opens the address itself; asks for no key."""

from __future__ import annotations

from fastapi import APIRouter, Request

router = APIRouter(tags=["health"])


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
