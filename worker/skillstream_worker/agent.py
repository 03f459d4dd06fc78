"""An agent: a named set of skills, and the plain arq functions registered beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from arq.cron import CronJob
from arq.worker import Function

from skillstream_schemas import keys
from skillstream_schemas.card import AgentCard
from skillstream_schemas.ids import check_name
from skillstream_schemas.limits import DEFAULT_ATTEMPTS
from skillstream_schemas.money import Price
from skillstream_schemas.request import OnRetry

from .chunking import Chunking
from .declaration import Declaration
from .skill import (
    BlockingFunction,
    BlockingStreamingFunction,
    PlainFunction,
    Skill,
    StreamingFunction,
    check_parameters,
    detect_streaming,
    is_async,
)
from .threads import in_thread

F = TypeVar("F", bound=StreamingFunction | PlainFunction | BlockingStreamingFunction | BlockingFunction)


class Agent:
    """Responsible for what one agent offers; its name is its queue.

    `functions` and `cron_jobs` are arq's own (`arq.func(...)`, a coroutine function, `arq.cron(...)`): they run on
    `arq:queue:{<name>}:plain` by an unmodified arq worker in the same process.
    """

    def __init__(
        self,
        name: str,
        description: str = "",
        *,
        functions: Sequence[Function | Callable[..., Any]] = (),
        cron_jobs: Sequence[CronJob] = (),
    ) -> None:
        if not isinstance(name, str):  # such as @Agent
            raise TypeError(f"the agent name {name!r} is no text")
        self.name = check_name(name, "the agent name")
        self.description = description
        self.skills: dict[str, Skill] = {}
        self.functions = list(functions)
        self.cron_jobs = list(cron_jobs)

    def __repr__(self) -> str:
        return f"<Agent {self.name} skills={', '.join(self.skills) or 'none'}>"

    @property
    def queue(self) -> str:
        """arq's queue of this agent."""
        return keys.queue(self.name)

    @property
    def card(self) -> AgentCard:
        """What is announced of this agent; workers add themselves."""
        skills = tuple(skill.card for skill in self.skills.values())
        return AgentCard(name=self.name, description=self.description, queue=self.queue, skills=skills)

    def skill(
        self,
        name: str,
        description: str = "",
        *,
        price_usd: Price | None = None,
        tags: Sequence[str] = (),
        examples: Sequence[str] = (),
        streaming: bool | None = None,
        timeout: float | None = None,
        max_attempts: int = DEFAULT_ATTEMPTS,
        retry_on: Sequence[type[BaseException]] = (),
        on_retry: str = OnRetry.RESTART.value,
        chunking: Chunking | None = None,
    ) -> Callable[[F], F]:
        """Registers an async generator function (streams) or an async function (only a final) as a skill.

        A plain generator function or function may block: it runs in a thread of its own, with a SyncTaskContext.
        `timeout` is seconds for one attempt. `retry_on` names exceptions that start another attempt with backoff.
        `on_retry` says what the next attempt does: `restart`, `resume` (it finds `context.partial_text`) or `fail`.
        Raises TypeError for another kind of function, parameter or argument, ValueError for values out of range,
        InvalidRequest for the price.
        """
        declaration = Declaration(self.name, name, self.skills)
        declaration.check(
            description=description, tags=tags, examples=examples, timeout=timeout, max_attempts=max_attempts,
            retry_on=retry_on, on_retry=on_retry, chunking=chunking,
        )  # fmt: skip
        price_micros = declaration.price_micros(price_usd)

        def register(function: F) -> F:
            check_parameters(name, function)
            self.skills[name] = Skill(
                name=name,
                function=function if is_async(function) else in_thread(function),
                description=description,
                price_micros=price_micros,
                tags=tuple(tags),
                examples=tuple(examples),
                timeout_s=timeout,
                max_attempts=max_attempts,
                retry_on=tuple(retry_on),
                on_retry=OnRetry(on_retry),
                chunking=chunking or Chunking(),
                streams=detect_streaming(function, streaming),
            )
            return function

        return register


SocietyAgent = Agent
"""The name under which the Society AI SDK has its agent."""
