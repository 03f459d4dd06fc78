"""Which model an agent node asks, and how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class ModelProvider(StrEnum):
    """Who serves a model."""

    OPENAI = "openai"
    AZURE_OPENAI = "azure_openai"
    ANTHROPIC = "anthropic"
    OLLAMA = "ollama"
    BEDROCK = "bedrock"
    GOOGLE = "google"
    GOOGLE_VERTEX_AI = "google_vertex_ai"


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """What an agent node asks: a provider's model, and the options of a pydantic-ai Agent under its names.

    `output_type` is str or what pydantic-ai takes, such as a pydantic model. `instrument` False keeps this agent out of
    the spans of a traced workflow.
    """

    model_provider: ModelProvider
    model_name: str
    output_type: Any = str
    instructions: str | None = None
    deps_type: type[Any] = object
    name: str | None = None
    model_settings: Any = None
    retries: int = 1
    tools: Sequence[Any] = ()
    capabilities: Sequence[Any] = ()
    instrument: bool = True
