"""A step that asks a model."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel

from .agent_config import AgentConfig
from .chat import OpenAIChatSchema
from .context import TaskContext
from .models import AgentShelf, load_pydantic_ai
from .node import Node
from .walk import current_walk

if TYPE_CHECKING:
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelMessage


class AgentNode(Node):
    """Responsible for a step that asks a model through `agent`, a pydantic-ai Agent made from `get_agent_config`.

    Raises MissingExtra, or ModelUnavailable, when it is made.
    """

    class OutputType(BaseModel):
        """Base of the structured output that a node asks for."""

    _shelf: ClassVar[AgentShelf]

    def __init_subclass__(cls, **options: Any) -> None:
        """Gives each class its own agents."""
        super().__init_subclass__(**options)
        cls._shelf = AgentShelf()

    @classmethod
    def prepare(cls) -> None:
        """Imports pydantic-ai; raises MissingExtra."""
        load_pydantic_ai()

    def __init__(self, task_context: TaskContext | None = None) -> None:
        super().__init__(task_context=task_context)
        walk = current_walk.get(None)
        traced = walk is not None and walk.tracing.enabled
        self.agent: Agent[Any, Any] = self._shelf.agent(self.get_agent_config(), traced=traced)

    @abstractmethod
    def get_agent_config(self) -> AgentConfig:
        """The model to ask, and how."""

    def message_history(self) -> list[ModelMessage]:
        """What was said before, for `message_history=` of pydantic-ai: that of a chat event, else of the task's context."""
        from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, UserPromptPart

        event, skill = self.task_context.event, self.task_context.skill
        if isinstance(event, OpenAIChatSchema):
            turns: list[tuple[str, str]] = [(message.role, message.content) for message in event.messages[:-1]]
        else:
            turns = [] if skill is None else [(turn["role"], turn["text"]) for turn in skill.conversation_history]
        messages: list[ModelMessage] = []
        for role, text in turns:
            if role in ("assistant", "agent"):
                messages.append(ModelResponse(parts=[TextPart(text)]))
            elif role == "user":
                messages.append(ModelRequest(parts=[UserPromptPart(text)]))
        return messages

    def count_usage(self, usage: Any) -> None:
        """Adds a pydantic-ai usage to that of the task, where a task runs the workflow."""
        if self.task_context.skill is not None:
            self.task_context.skill.usage(
                requests=usage.requests, input_tokens=usage.input_tokens, output_tokens=usage.output_tokens
            )
