"""A module that cannot be imported: it registers a skill twice."""

from __future__ import annotations

from .cli_agent import agent, echo

agent.skill("echo")(echo)
