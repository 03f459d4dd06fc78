"""The cards of agents as a client keeps them."""

from __future__ import annotations

import time

from skillstream_schemas.card import SkillCard
from skillstream_schemas.errors import UnknownAgent, UnknownSkill
from skillstream_schemas.ids import check_name

from .broker import Broker

_FRESH_S = 5.0


class Cards:
    """Responsible for the cards of skills, as the broker had them 5 s ago at most."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._skills: dict[tuple[str, str], SkillCard] = {}
        self._read_at_s = -_FRESH_S

    def known(self, agent: str, skill: str) -> SkillCard | None:
        """The card that was read lately; None where it has to be looked for."""
        if time.monotonic() - self._read_at_s >= _FRESH_S:
            return None
        try:
            return self._skills.get((agent, skill))
        except TypeError:  # no texts
            return None

    async def find(self, agent: str, skill: str) -> SkillCard:
        """Reads the broker's cards; raises UnknownAgent, UnknownSkill, InvalidName, BrokerUnavailable."""
        check_name(agent, "the agent name")
        cards = await self._broker.cards()
        self._skills = {(name, card.name): card for name, agent_card in cards.items() for card in agent_card.skills}
        self._read_at_s = time.monotonic()
        found = cards.get(agent)
        if found is None:
            known = ", ".join(sorted(cards)) or "none"
            raise UnknownAgent(f"agent {agent!r} is not known on this broker; known agents: {known}")
        card = found.skill(skill)
        if card is None:
            known = ", ".join(sorted(s.name for s in found.skills)) or "none"
            raise UnknownSkill(f"agent {agent!r} has no skill {str(skill)[:100]!r}; its skills: {known}")
        return card
