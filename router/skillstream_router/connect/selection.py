"""Which agents a connector offers, and which skill answers where nobody names one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from skillstream_schemas.card import AgentCard
from skillstream_schemas.errors import UnknownAgent, UnknownSkill


@dataclass(frozen=True, slots=True)
class AgentSkill:
    """An agent, and its skill for messages that name none."""

    name: str
    skill: str


def select(cards: Mapping[str, AgentCard], wanted: Sequence[str]) -> list[AgentSkill]:
    """Reads `agent` or `agent/skill`; without any, all agents that have a skill.

    The skill that is not named is the agent's only one, or the one called `chat`, or its first. Raises UnknownAgent,
    UnknownSkill.
    """
    names = wanted or [name for name, card in sorted(cards.items()) if card.skills]
    if not names:
        raise UnknownAgent("no agent is known on this broker yet")
    return [_select(cards, *name.partition("/")[::2]) for name in names]


def _select(cards: Mapping[str, AgentCard], name: str, skill: str) -> AgentSkill:
    card = cards.get(name)
    if card is None:
        raise UnknownAgent(f"agent {name!r} is not known on this broker; known agents: {', '.join(sorted(cards)) or 'none'}")
    known = [each.name for each in card.skills]
    if not known or (skill and skill not in known):
        raise UnknownSkill(f"agent {name!r} has no skill {skill!r}; its skills: {', '.join(known) or 'none'}")
    return AgentSkill(name, skill or ("chat" if "chat" in known else known[0]))
