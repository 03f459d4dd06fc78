"""Calls of one script that travel together: one EVALSHA does the work of many callers in a slot."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import cast

from skillstream_schemas.errors import BrokerRefused, BrokerUnavailable

from .calling import Caller, Problem
from .pipeline import Pipeline
from .resp import Argument, Reply, ReplyError, pack
from .scripts import Script

_FLIGHT_ITEMS = 48
_GROUP_BYTES = 256 * 1024


class _Item:
    """One call: its keys and arguments, and who waits for the answer."""

    __slots__ = ("alone", "answer", "arguments", "keys", "shared", "size_bytes")

    def __init__(self, shared: tuple[str, ...], keys: Sequence[Argument], arguments: Sequence[Argument], alone: bool) -> None:
        self.shared, self.keys, self.arguments, self.alone = shared, keys, arguments, alone
        self.size_bytes = 0
        for part in arguments:  # texts decide; the rest of an item is small
            if type(part) is str:
                self.size_bytes += len(part)
        self.answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()


class ScriptBatch:
    """Responsible for the calls of a script that takes many items of one slot: shared keys first, then each item's.

    The script answers a list with one reply an item. A call may be repeated, as all scripts may.
    """

    def __init__(self, caller: Caller, script: Script, shared_arguments: Sequence[Argument] = ()) -> None:
        self._caller, self._script = caller, script
        self._shared_arguments = tuple(shared_arguments)
        self._queues: dict[Pipeline, _Queue] = {}

    def __repr__(self) -> str:
        return f"<ScriptBatch {self._script.name} {list(self._queues.values())}>"

    async def run(self, shared: tuple[str, ...], keys: Sequence[Argument], arguments: Sequence[Argument]) -> Reply:
        """Runs the script for one item, together with those of others that share the keys `shared`.

        Raises BrokerUnavailable and BrokerRefused as `Caller.run`.
        """
        reply = await self._persist(shared, keys, arguments, False)
        if isinstance(reply, ReplyError):  # it may be the fault of another item of the group
            if reply.kind == "NOSCRIPT":
                await self._caller.load(self._script)
            reply = await self._persist(shared, keys, arguments, True)
        if isinstance(reply, ReplyError):
            raise BrokerRefused(f"{self._script.name}: {reply}")
        return reply

    async def _persist(
        self, shared: tuple[str, ...], keys: Sequence[Argument], arguments: Sequence[Argument], alone: bool
    ) -> Reply:
        problem: Problem | None
        since_s = asyncio.get_running_loop().time()
        try:
            reply = await self._ask(shared, keys, arguments, alone)
            problem = self._caller.refusal(reply)
        except BrokerUnavailable as error:
            problem = error
        if problem is None:
            return reply
        return await self._caller.persist(partial(self._ask, shared, keys, arguments, alone), self._script.name, problem, since_s)

    def _ask(
        self, shared: tuple[str, ...], keys: Sequence[Argument], arguments: Sequence[Argument], alone: bool
    ) -> asyncio.Future[Reply]:
        link = self._caller.link_of(shared[0])
        queue = self._queues.get(link)
        if queue is None:
            queue = self._queues[link] = _Queue(link, self._script, self._shared_arguments)
        return queue.add(_Item(shared, keys, arguments, alone))


class _Queue:
    """Responsible for the items that wait for one server, and for those under way to it."""

    def __init__(self, pipeline: Pipeline, script: Script, shared_arguments: Sequence[Argument]) -> None:
        self._pipeline, self._script, self._shared_arguments = pipeline, script, shared_arguments
        self._waiting: deque[_Item] = deque()
        self._flights: deque[list[list[_Item]]] = deque()
        self._queued = False

    def __repr__(self) -> str:
        return f"waiting={len(self._waiting)} flights={len(self._flights)}"

    def add(self, item: _Item) -> asyncio.Future[Reply]:
        """Takes an item; the future gets its answer, or the error of its group."""
        self._waiting.append(item)
        self._queue()
        return item.answer

    def pack(self) -> tuple[bytes, int]:
        """Called by the pipeline at the moment of writing: one command a group."""
        self._queued = False
        groups: dict[object, list[_Item]] = {}
        size_bytes = 0
        taken = 0
        while self._waiting and size_bytes < _GROUP_BYTES and taken < _FLIGHT_ITEMS:
            item = self._waiting.popleft()
            if item.answer.cancelled():
                continue
            size_bytes += item.size_bytes
            taken += 1
            group = groups.setdefault(item if item.alone else item.shared, [])
            group.append(item)
        if groups:
            self._flights.append(list(groups.values()))
        self._queue()
        return b"".join(map(self._command, groups.values())), len(groups)

    def deliver(self, replies: Sequence[Reply] | BrokerUnavailable) -> None:
        """Called by the pipeline with the answers."""
        if not self._flights:  # nothing was written: the pipeline's patience has ended
            self._queued = False
            flight, self._waiting = [list(self._waiting)], deque()
        else:
            flight = self._flights.popleft()
        for number, group in enumerate(flight):
            reply = replies if isinstance(replies, BrokerUnavailable) else replies[number]
            single = isinstance(reply, ReplyError | BrokerUnavailable)
            answers: Sequence[Reply] = [reply] * len(group) if single else cast(Sequence[Reply], reply)
            for item, answer in zip(group, answers, strict=True):
                _answer(item, answer)

    def _queue(self) -> None:
        if not self._waiting:
            return
        if self._queued:
            self._pipeline.weigh()
        else:
            self._queued = True
            self._pipeline.add(self)

    def _command(self, group: list[_Item]) -> bytes:
        keys: list[Argument] = list(group[0].shared)
        arguments: list[Argument] = list(self._shared_arguments)
        for item in group:
            keys += item.keys
            arguments += item.arguments
        return pack(self._script.evalsha(keys, arguments))


def _answer(item: _Item, answer: Reply | BrokerUnavailable) -> None:
    if item.answer.done():
        return
    if isinstance(answer, BrokerUnavailable):
        item.answer.set_exception(answer)
    else:
        item.answer.set_result(answer)
