"""A skill's name as a model's: `AGENT/SKILL`."""

from __future__ import annotations

from skillstream_schemas.errors import UnknownAgent
from skillstream_schemas.ids import is_name
from skillstream_schemas.limits import MAX_LABEL_CHARS


def model_name(agent: str, skill: str) -> str:
    """The model that stands for a skill."""
    return f"{agent}/{skill}"


def split_model(model: str) -> tuple[str, str]:
    """Agent and skill of a model; raises UnknownAgent for what cannot be one. The skill's name may have a slash."""
    agent, _, skill = model.partition("/")
    if not is_name(agent) or not 1 <= len(skill) <= MAX_LABEL_CHARS:
        raise UnknownAgent(f"the model {model[:140]!r} is not AGENT/SKILL; GET /v1/models lists all")
    return agent, skill
