"""What can be asked for."""

from __future__ import annotations

from fastapi import APIRouter, Request

from skillstream_router.http.authentication import CallerOf
from skillstream_router.http.gateway import Gateway
from skillstream_router.http.orders import AgentAnswer, AgentsAnswer, SkillAnswer
from skillstream_schemas.card import AgentCard

router = APIRouter(prefix="/v1/agents", tags=["agents"])


@router.get("")
async def agents(request: Request, caller: CallerOf) -> AgentsAnswer:
    """All agents that ever announced themselves, with their skills and prices."""
    gateway: Gateway = request.app.state.gateway
    return AgentsAnswer(agents=[_shown(card) for card in await gateway.agents(caller)])


def _shown(card: AgentCard) -> AgentAnswer:
    skills = [
        SkillAnswer(
            name=skill.name, description=skill.description, price_micros=skill.price_micros, tags=list(skill.tags),
            examples=list(skill.examples), streaming=skill.streaming,
        )
        for skill in card.skills
    ]  # fmt: skip
    return AgentAnswer(name=card.name, description=card.description, workers=len(card.workers), skills=skills)
