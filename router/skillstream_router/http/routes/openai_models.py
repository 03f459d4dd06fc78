"""Models, as OpenAI's clients list them: each skill of each agent is one."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from skillstream_router.http.authentication import CallerOf
from skillstream_router.http.gateway import Gateway
from skillstream_router.http.openai.model_name import model_name, split_model
from skillstream_schemas.errors import UnknownSkill

router = APIRouter(prefix="/v1/models", tags=["openai"])


@router.get("")
async def models(request: Request, caller: CallerOf) -> dict[str, Any]:
    """All skills that can be asked for."""
    gateway: Gateway = request.app.state.gateway
    cards = await gateway.agents(caller)
    return {"object": "list", "data": [_model(card.name, skill.name) for card in cards for skill in card.skills]}


@router.get("/{model:path}")
async def model(model: str, request: Request, caller: CallerOf) -> dict[str, Any]:
    """One of them."""
    gateway: Gateway = request.app.state.gateway
    agent, skill = split_model(model)
    for card in await gateway.agents(caller):
        if card.name == agent and card.skill(skill) is not None:
            return _model(agent, skill)
    raise UnknownSkill(f"there is no model {model[:400]!r}; GET /v1/models lists all")


def _model(agent: str, skill: str) -> dict[str, Any]:
    # nobody notes when a skill was first announced: 0 is no claim
    return {"id": model_name(agent, skill), "object": "model", "created": 0, "owned_by": agent}
