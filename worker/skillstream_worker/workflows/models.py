"""From an agent's config to a pydantic-ai agent that can be asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from skillstream_schemas.errors import MissingExtra
from skillstream_schemas.workflow_errors import ModelUnavailable

from .agent_config import AgentConfig, ModelProvider

if TYPE_CHECKING:
    from pydantic_ai import Agent
    from pydantic_ai.models import Model

ModelChoice = Callable[[AgentConfig], "Model"]

_NAMES = {
    ModelProvider.AZURE_OPENAI: "azure",
    ModelProvider.GOOGLE_VERTEX_AI: "google-cloud",
}
"""What pydantic-ai calls a provider, where that is not our name."""

_stand_in: ModelChoice | None = None


def replace_models(choose: ModelChoice | None) -> Callable[[], None]:
    """From here on agent nodes of this process take their model from `choose(config)`, None: their own again.

    For tests and runs without a network, with pydantic-ai's TestModel or FunctionModel. Returns a function that
    restores what was before.
    """
    global _stand_in
    before, _stand_in = _stand_in, choose

    def restore() -> None:
        global _stand_in
        _stand_in = before

    return restore


def load_pydantic_ai() -> None:
    """Imports what agents are made of, which takes a second or two; raises MissingExtra."""
    try:
        import pydantic_ai.models  # noqa: F401
    except ImportError:
        raise MissingExtra("agent nodes need pydantic-ai", extra="pydantic-ai") from None


class AgentShelf:
    """Responsible for making pydantic-ai agents, and keeps the one that was made last: that takes milliseconds.

    It is made again where the config, the choice of models, or the event loop is another one.
    """

    def __init__(self) -> None:
        self._made_for: tuple[Any, ...] | None = None
        self._agent: Agent[Any, Any] | None = None

    def agent(self, config: AgentConfig, *, traced: bool) -> Agent[Any, Any]:
        """The agent of a config; raises MissingExtra, or ModelUnavailable where a provider's package or key is missing."""
        try:
            loop: object = asyncio.get_running_loop()
        except RuntimeError:
            loop = object()  # unlike any other
        made_for = (config, traced, _stand_in, loop)
        if self._agent is None or self._made_for != made_for:
            self._agent, self._made_for = _build(config, traced=traced), made_for
        return self._agent


def _build(config: AgentConfig, *, traced: bool) -> Agent[Any, Any]:
    load_pydantic_ai()
    from pydantic_ai import Agent

    agent: Agent[Any, Any] = Agent(
        _model(config) if _stand_in is None else _stand_in(config),
        output_type=config.output_type,
        instructions=config.instructions,
        deps_type=config.deps_type,
        name=config.name,
        model_settings=config.model_settings,
        retries=config.retries,
        tools=config.tools,
        capabilities=config.capabilities,
    )
    if traced and config.instrument:
        agent.instrument = True
    return agent


def _model(config: AgentConfig) -> Model:
    from pydantic_ai.models import infer_model

    provider = ModelProvider(config.model_provider)
    name = f"{_NAMES.get(provider, provider.value)}:{config.model_name}"
    try:
        return infer_model(name)
    except Exception as error:  # each provider's package has errors of its own
        raise ModelUnavailable(f"{name}: {error}") from error
