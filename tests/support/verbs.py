"""One handler for all tests of the worker: a skill does what the verbs in its message say, and meets the test at gates."""

from __future__ import annotations

import asyncio
import builtins
import json
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import arq
from pydantic import BaseModel

from skillstream_schemas.event import FinalEvent
from skillstream_worker import Agent, Response, Retry, TaskContext

BOUND_S = 10.0
_SKILL_S = 50.0
"""A skill waits for its test, whose own waits are bounded: longer than several of those."""
AGENT = "verbs"
_NOTHING = object()


class Halt(BaseException):
    """An exception that is no Exception, as some libraries have for their own control flow."""


class Book(BaseModel):
    """A structured piece of output."""

    title: str
    pages: int


class Gates:
    """Responsible for the moments at which a test and a skill meet, and for what skills saw.

    `contexts` are those that the skill was called with, in order; `closed` the attempts whose generator ended, and
    `endings` by which exception (None for a plain end).
    """

    def __init__(self) -> None:
        self.contexts: list[TaskContext] = []
        self.closed: list[int] = []
        self.endings: list[str | None] = []
        self.children: list[FinalEvent] = []
        self._events: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    def __repr__(self) -> str:
        return f"<Gates open={[name for name, event in self._events.items() if event.is_set()]} closed={self.closed}>"

    def open(self, name: str) -> None:
        """Lets everyone pass who waits here."""
        self._events[name].set()

    async def reached(self, name: str, bound_s: float = BOUND_S) -> None:
        """Waits until the gate is open, within the bound."""
        await asyncio.wait_for(self._events[name].wait(), bound_s)


def script(*verbs: list[Any]) -> str:
    """A message for the skills of `verb_agent`."""
    return json.dumps(verbs)


def verb_agent(gates: Gates, name: str = AGENT, **options: Any) -> Agent:
    """An agent with the skills `stream` (yields) and `plain` (returns); `options` are those of `Agent.skill`."""
    agent = Agent(name, "Does what its message says")
    verbs = Verbs(gates)
    agent.skill("stream", "Yields what the verbs make", **options)(verbs.stream)
    plain = {name: value for name, value in options.items() if name not in ("streaming", "chunking")}
    agent.skill("plain", "Returns what the first verb makes", **plain)(verbs.plain)
    return agent


class Verbs:
    """Responsible for doing what a message says: each verb is the name of a method and its arguments.

    A verb gives a piece to yield or return, or nothing.
    """

    def __init__(self, gates: Gates) -> None:
        self._gates = gates
        self._verbs: dict[str, Callable[..., Awaitable[Any]]] = {
            "say": self._yield, "yield": self._yield, "snapshot": self._yield, "book": self._book, "progress": self._progress,
            "respond": self._respond, "status": self._status, "usage": self._usage, "reach": self._reach, "wait": self._wait,
            "swallow_cancel": self._swallow_cancel, "raise": self._raise, "retry": self._retry, "delegate": self._delegate,
            "say_partial": self._say_partial,
        }  # fmt: skip

    async def stream(self, message: str, context: TaskContext) -> AsyncGenerator[Any, None]:
        """The streaming skill."""
        self._gates.contexts.append(context)
        ending: str | None = None
        try:
            for name, *arguments in self._of_attempt(json.loads(message), context.attempt):
                piece = await self._verbs[name](context, *arguments)
                if piece is not _NOTHING:
                    yield piece
        except BaseException as error:
            ending = type(error).__name__
            raise
        finally:
            self._gates.closed.append(context.attempt)
            self._gates.endings.append(ending)

    async def plain(self, message: str, context: TaskContext) -> Any:
        """The skill that returns the first piece that a verb makes, None without one."""
        self._gates.contexts.append(context)
        for name, *arguments in self._of_attempt(json.loads(message), context.attempt):
            piece = await self._verbs[name](context, *arguments)
            if piece is not _NOTHING:
                return piece
        return None

    @staticmethod
    def _of_attempt(verbs: list[Any], attempt: int) -> list[Any]:
        """The verbs, with ["attempt", n, verb, …] replaced by its verbs in attempt n and left out in others."""
        played: list[Any] = []
        for verb in verbs:
            if verb[0] != "attempt":
                played.append(verb)
            elif verb[1] == attempt:
                played += verb[2:]
        return played

    async def _yield(self, context: TaskContext, piece: Any) -> Any:
        return piece

    async def _book(self, context: TaskContext, title: str, pages: int) -> Book:
        return Book(title=title, pages=pages)

    async def _progress(self, context: TaskContext, text: str, progress: float | None = None) -> Response:
        return Response(text=text, status="working", progress=progress)

    async def _respond(self, context: TaskContext, fields: dict[str, Any]) -> Response:
        return Response(**fields)

    async def _status(self, context: TaskContext, text: str, progress: float | None = None, metadata: Any = None) -> object:
        await context.status(text, progress=progress, metadata=metadata)
        return _NOTHING

    async def _usage(self, context: TaskContext, counts: dict[str, Any]) -> object:
        context.usage(**counts)
        return _NOTHING

    async def _reach(self, context: TaskContext, gate: str) -> object:
        self._gates.open(gate)
        return _NOTHING

    async def _wait(self, context: TaskContext, gate: str) -> object:
        await self._gates.reached(gate, _SKILL_S)
        return _NOTHING

    async def _swallow_cancel(self, context: TaskContext, gate: str) -> object:
        try:
            await self._gates.reached(gate, _SKILL_S)
        except asyncio.CancelledError:
            self._gates.open("swallowed")
        return _NOTHING

    async def _raise(self, context: TaskContext, name: str, text: str = "") -> object:
        raise (_ERRORS.get(name) or getattr(builtins, name))(text)

    async def _retry(self, context: TaskContext, delay_s: float | None = None, kind: str = "ours") -> object:
        raise Retry(delay_s) if kind == "ours" else arq.Retry(defer=delay_s)

    async def _delegate(self, context: TaskContext, agent: str, skill: str, message: str) -> object:
        async for event in context.delegate(agent, skill, message):
            if isinstance(event, FinalEvent):
                self._gates.children.append(event)
        return _NOTHING

    async def _say_partial(self, context: TaskContext) -> str:
        return f"[{context.partial_text}]"


_ERRORS: dict[str, Callable[[str], BaseException]] = {"CancelledError": asyncio.CancelledError, "Halt": Halt}
