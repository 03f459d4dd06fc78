"""Agent cards: what an agent offers, as workers announce it on the broker."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from .errors import MalformedEntry
from .limits import DEFAULT_ATTEMPTS, MAX_BYTES
from .request import OnRetry, describe


class SkillCard(BaseModel):
    """One skill: what it does, costs and does when it is run again. `timeout_s` is None where it has none."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    description: str = ""
    price_micros: int = 0
    tags: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    streaming: bool = False
    timeout_s: float | None = None
    max_attempts: int = DEFAULT_ATTEMPTS
    on_retry: OnRetry = OnRetry.RESTART


class AgentCard(BaseModel):
    """An agent and the skills of all its live workers.

    `workers` maps the name of each live worker, `seen` that of each skill to unix ms when it was last announced.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    description: str = ""
    queue: str
    skills: tuple[SkillCard, ...] = ()
    workers: dict[str, int] = Field(default_factory=dict)
    seen: dict[str, int] = Field(default_factory=dict)

    def skill(self, name: str) -> SkillCard | None:
        """The card of one skill, None if the agent does not have it."""
        return next((skill for skill in self.skills if skill.name == name), None)

    @classmethod
    def from_json(cls, text: str | bytes) -> AgentCard:
        """Reads a card from the broker; raises MalformedEntry, for one over `MAX_BYTES` before parsing."""
        if len(text) > MAX_BYTES:
            raise MalformedEntry(f"agent card: {len(text)} bytes, the limit is {MAX_BYTES}")
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise MalformedEntry(f"agent card: {describe(error)}") from None
