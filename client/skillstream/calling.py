"""Commands that may be repeated: sent until an answer comes, for as long as a broker's patience lasts."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from skillstream_schemas.errors import BrokerAccessDenied, BrokerRefused, BrokerUnavailable
from skillstream_schemas.settings import Settings

from .connection import Connection, OnPush
from .resp import Argument, Reply, ReplyError
from .scripts import Script

if TYPE_CHECKING:
    from .pipeline import Pipeline

RETRY_KINDS = frozenset({"LOADING", "READONLY", "MASTERDOWN", "TRYAGAIN", "CLUSTERDOWN", "OOM", "NOREPLICAS", "BUSY", "MISCONF"})
"""Answers of a broker that cannot take a write just now; nothing of the command was done."""
REDIRECTS = frozenset({"MOVED", "ASK"})
"""Answers of a cluster's node that has not got the key: `MOVED` for good, `ASK` while its slot moves. Nothing was done."""
STALE_LINK = frozenset({"READONLY", "MASTERDOWN"})
"""Answers of a server that is no primary any more: connect again, it may be another one."""
FIRST_PAUSE_S = 0.02
LONGEST_PAUSE_S = 1.0

Problem = ReplyError | BrokerUnavailable
"""Why an answer did not come, or cannot be the last one."""


class Patience:
    """Responsible for the pauses of one step: they grow, and end with BrokerUnavailable after `patience_s`.

    Patience counts from `since_s` on, the event loop's time, or from the first pause.
    """

    def __init__(self, patience_s: float, step: str, since_s: float | None = None) -> None:
        self._patience_s, self._step = patience_s, step
        self._pause_s = FIRST_PAUSE_S
        self._give_up_s = None if since_s is None else since_s + patience_s

    async def pause(self, problem: Problem) -> None:
        """Waits before the next try; raises BrokerUnavailable, which names the step and the problem, where there is none."""
        now_s = asyncio.get_running_loop().time()
        if self._give_up_s is None:
            self._give_up_s = now_s + self._patience_s
        if now_s + self._pause_s > self._give_up_s:
            self.end(problem)
        await asyncio.sleep(self._pause_s)
        self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)

    def end(self, problem: Problem) -> None:
        """Raises BrokerUnavailable, or BrokerAccessDenied where that is the problem."""
        if isinstance(problem, BrokerUnavailable):
            raise type(problem)(f"{self._step}: {problem.message}") from None
        raise BrokerUnavailable(f"{self._step}: {problem}") from None


class Caller(ABC):
    """Responsible for commands and scripts that may be repeated, on one server or on the nodes of a cluster."""

    passing = RETRY_KINDS
    """Kinds of error answers after which a command is sent again."""
    outlasts_denial = False
    """True where a password that is refused is tried again for as long as the patience lasts, as if the broker were away."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._closed = False

    @abstractmethod
    async def open(self) -> None:
        """Connects for the first time; raises BrokerUnavailable at once where nobody listens."""

    @abstractmethod
    async def close(self) -> None:
        """Breaks off what is under way and closes the connections; twice is safe."""

    @property
    @abstractmethod
    def connections_made(self) -> int:
        """Greater than before where an answer may have been lost."""

    @abstractmethod
    def link_of(self, key: str) -> Pipeline:
        """The pipeline to the server that has a key, as far as is known."""

    @abstractmethod
    async def connect(self, key: str | None, *, protocol: int = 2, on_push: OnPush | None = None) -> Connection:
        """A connection of its own to the server that has a key, or to any: for what blocks or is told out of turn."""

    @abstractmethod
    async def heed(self, problem: Problem) -> None:
        """Draws the conclusion from a problem for what is sent next: another connection, another node."""

    @abstractmethod
    async def load(self, script: Script) -> None:
        """Gives a script to servers that forgot it; raises as `call` does."""

    @abstractmethod
    def _persist(self, commands: Sequence[Sequence[Argument]], step: str) -> Awaitable[Reply]:
        """The answer to one command, or the list of answers to several, asked for until they come."""

    async def call(self, *arguments: Argument, step: str = "") -> Reply:
        """Runs one command that may be repeated, for as long as the broker's patience lasts.

        It is sent again after a broken connection and where the broker cannot take writes just now. Raises
        BrokerUnavailable, which names `step`, after `patience_s`, and BrokerRefused for any other error answer.
        """
        reply = await self._persist((arguments,), step or str(arguments[0]))
        if isinstance(reply, ReplyError):
            raise BrokerRefused(f"{step or arguments[0]!s}: {reply}")
        return reply

    async def run(self, script: Script, keys: Sequence[Argument], arguments: Sequence[Argument]) -> Reply:
        """Runs a script that may be repeated; raises as `call` does."""
        commands = (script.evalsha(keys, arguments),)
        reply = await self._persist(commands, script.name)
        if isinstance(reply, ReplyError) and reply.kind == "NOSCRIPT":
            await self.load(script)
            reply = await self._persist(commands, script.name)
        if isinstance(reply, ReplyError):
            raise BrokerRefused(f"{script.name}: {reply}")
        return reply

    async def run_and_read(
        self, script: Script, keys: Sequence[Argument], arguments: Sequence[Argument], read: bytes
    ) -> tuple[Reply, Reply]:
        """Runs a script and, behind it in the same batch, a packed read of its first key; both answers, raises as `call` does.

        An entry costs a server several times more on its way through a script than when it is read.
        """
        commands = (script.evalsha(keys, arguments), read)
        replies = await self._persist(commands, script.name)
        if isinstance(replies[0], ReplyError) and replies[0].kind == "NOSCRIPT":
            await self.load(script)
            replies = await self._persist(commands, script.name)
        for reply in replies:
            if isinstance(reply, ReplyError):
                raise BrokerRefused(f"{script.name}: {reply}")
        return replies[0], replies[1]

    async def batch(self, commands: Sequence[Sequence[Argument]], step: str) -> list[Reply]:
        """Runs several commands that may be repeated as one unit; error answers stand in their places.

        A command that is bytes is packed already. Where the broker cannot take one of them just now, it is sent again as in
        `call`, and with it whatever went to the same server, on a cluster to the same key.
        """
        if not commands:
            return []
        replies = await self._persist(commands, step)
        return [replies] if len(commands) == 1 else list(replies)

    async def persist(
        self, ask: Callable[[], asyncio.Future[Reply]], step: str, problem: Problem, since_s: float, count: int = 1
    ) -> Reply:
        """The answer, or the list of `count` answers, asked for again after `problem` until it comes.

        Raises BrokerUnavailable `patience_s` after `since_s`, the event loop's time of the first try: it may have waited
        for a connection as long as that already. Raises BrokerAccessDenied at once, unless it `outlasts_denial`.
        """
        patience = Patience(self._settings.patience_s, step, since_s)
        while True:
            await self.heed(problem)
            if self._closed or self.is_hopeless(problem):
                patience.end(problem)
            await patience.pause(problem)
            try:
                reply = await ask()
                refusal = self.refusal(reply, count)
            except BrokerUnavailable as error:
                problem = error
            else:
                if refusal is None:
                    return reply
                problem = refusal

    def is_hopeless(self, problem: Problem | None) -> bool:
        """True for a problem that does not go away by waiting: a server reads its users before it answers anyone."""
        return isinstance(problem, BrokerAccessDenied) and not self.outlasts_denial

    def refusal(self, reply: Reply, count: int = 1) -> ReplyError | None:
        """The answer, or the first among several, that a broker gives which cannot take a command just now."""
        if count == 1 and type(reply) is not ReplyError:
            return None
        for answer in reply if count > 1 else (reply,):
            if isinstance(answer, ReplyError) and answer.kind in self.passing:
                return answer
        return None
