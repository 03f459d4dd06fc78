"""Calls of one script that travel together: one EVALSHA does the work of many callers in a slot."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, cast

from skillstream_schemas.errors import BrokerRefused, BrokerUnavailable

from .calling import Caller, Problem
from .pipeline import Pipeline
from .resp import Argument, Reply, ReplyError, pack
from .scripts import Script

_FLIGHT_ITEMS = 48
_GROUP_BYTES = 256 * 1024


class Call(NamedTuple):
    """One item for a script: the keys that it shares with others, its own keys and arguments, and about how large they are.

    `then` is asked for next, as soon as this call's answer allows it, for the same caller: who waits is woken once.
    """

    shared: tuple[str, ...]
    keys: Sequence[Argument]
    arguments: Sequence[Argument]
    size_bytes: int = 0
    then: Next | None = None


class Next(NamedTuple):
    """A call of another script for which an answer has to be waited: `allows` says of the answer that it may be sent."""

    batch: ScriptBatch
    call: Call
    allows: Callable[[Reply], bool]


class _Item:
    """A call that waits or is under way, and who hears its answer."""

    __slots__ = ("alone", "answer", "call")

    def __init__(self, call: Call, answer: asyncio.Future[Reply], alone: bool) -> None:
        self.call, self.answer, self.alone = call, answer, alone

    @property
    def is_unheard(self) -> bool:
        """True once nobody waits for the answer."""
        return self.answer.done()

    def take(self, answer: Reply | BrokerUnavailable) -> None:
        """Hands the answer on, or goes on to the next call."""
        then = self.call.then
        if then is not None and type(answer) is list and then.allows(answer):
            self.call = then.call
            then.batch.put(self)
        else:
            self._hear(answer)

    def _hear(self, answer: Reply | BrokerUnavailable) -> None:
        if self.answer.done():
            return
        if isinstance(answer, BrokerUnavailable):
            self.answer.set_exception(answer)
        else:
            self.answer.set_result(answer)


class _Answers:
    """Responsible for the answers to many calls, waited for together; an error stands in its place among them."""

    def __init__(self, count: int) -> None:
        self.whole: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._answers: list[Reply] = [None] * count
        self._missing = count

    def put(self, place: int, answer: Reply | BrokerUnavailable) -> None:
        """Takes the answer to one call, each once."""
        self._answers[place] = answer
        self._missing -= 1
        if not self._missing and not self.whole.done():
            self.whole.set_result(self._answers)


class _Share(_Item):
    """One of many calls whose caller waits for all."""

    __slots__ = ("_answers", "_place")

    def __init__(self, call: Call, answers: _Answers, place: int) -> None:
        super().__init__(call, answers.whole, alone=False)
        self._answers, self._place = answers, place

    def _hear(self, answer: Reply | BrokerUnavailable) -> None:
        self._answers.put(self._place, answer)


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

    async def run(self, call: Call) -> Reply:
        """Runs the script for one item, together with those of others that share its keys; the last answer of its calls.

        Raises BrokerUnavailable and BrokerRefused as `Caller.run`.
        """
        reply = await self._persist(call, False)
        if isinstance(reply, ReplyError):  # it may be the fault of another item of the group
            if reply.kind == "NOSCRIPT":
                await self._load(call)
            reply = await self._persist(call, True)
        if isinstance(reply, ReplyError):
            raise BrokerRefused(f"{self._script.name}: {reply}")
        return reply

    async def run_once(self, calls: Sequence[Call]) -> list[Reply | BrokerUnavailable]:
        """Runs the script for many items; what is no answer stands in its place: whoever asked tries that item with `run`."""
        if not calls:
            return []
        answers = _Answers(len(calls))
        for place, call in enumerate(calls):
            self.put(_Share(call, answers, place))
        return cast("list[Reply | BrokerUnavailable]", await answers.whole)

    def command(self, calls: Sequence[Call]) -> bytes:
        """The packed command that runs the script for calls that share their keys; it answers a list."""
        keys: list[Argument] = list(calls[0].shared)
        arguments: list[Argument] = list(self._shared_arguments)
        for call in calls:
            keys += call.keys
            arguments += call.arguments
        return pack(self._script.evalsha(keys, arguments))

    def put(self, item: _Item) -> None:
        """Has an item travel with the next batch to the server of its keys."""
        link = self._caller.link_of(item.call.shared[0])
        queue = self._queues.get(link)
        if queue is None:
            queue = self._queues[link] = _Queue(link, self)
        queue.add(item)

    async def _load(self, call: Call) -> None:
        await self._caller.load(self._script)
        if call.then is not None:  # a server forgets all at once
            await call.then.batch._load(call.then.call)

    async def _persist(self, call: Call, alone: bool) -> Reply:
        problem: Problem | None
        since_s = asyncio.get_running_loop().time()
        try:
            reply = await self._ask(call, alone)
            problem = self._caller.refusal(reply)
        except BrokerUnavailable as error:
            problem = error
        if problem is None:
            return reply
        return await self._caller.persist(partial(self._ask, call, alone), self._script.name, problem, since_s)

    def _ask(self, call: Call, alone: bool) -> asyncio.Future[Reply]:
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.put(_Item(call, answer, alone))
        return answer


class _Queue:
    """Responsible for the items that wait for one server, and for those under way to it."""

    def __init__(self, pipeline: Pipeline, batch: ScriptBatch) -> None:
        self._pipeline, self._batch = pipeline, batch
        self._waiting: deque[_Item] = deque()
        self._flights: deque[list[list[_Item]]] = deque()
        self._queued = False

    def __repr__(self) -> str:
        return f"waiting={len(self._waiting)} flights={len(self._flights)}"

    def add(self, item: _Item) -> None:
        """Takes an item, which gets its answer, or the error of its group."""
        self._waiting.append(item)
        self._queue()

    def pack(self) -> tuple[bytes, int]:
        """Called by the pipeline at the moment of writing: one command a group."""
        self._queued = False
        groups: dict[object, list[_Item]] = {}
        size_bytes = 0
        taken = 0
        while self._waiting and size_bytes < _GROUP_BYTES and taken < _FLIGHT_ITEMS:
            item = self._waiting.popleft()
            if item.is_unheard:
                continue
            size_bytes += item.call.size_bytes
            taken += 1
            group = groups.setdefault(item if item.alone else item.call.shared, [])
            group.append(item)
        if groups:
            self._flights.append(list(groups.values()))
        self._queue()
        commands = [self._batch.command([item.call for item in group]) for group in groups.values()]
        return b"".join(commands), len(groups)

    def deliver(self, replies: Sequence[Reply] | BrokerUnavailable) -> None:
        """Called by the pipeline with the answers; raises ValueError behind one that is none of the script's."""
        if not self._flights:  # nothing was written: the pipeline's patience has ended
            self._queued = False
            flight, self._waiting = [list(self._waiting)], deque()
        else:
            flight = self._flights.popleft()
        misfit = ""
        for number, group in enumerate(flight):
            reply = replies if isinstance(replies, BrokerUnavailable) else replies[number]
            if type(reply) is list and len(reply) == len(group):
                for item, answer in zip(group, reply, strict=True):
                    item.take(answer)
                continue
            if not isinstance(reply, ReplyError | BrokerUnavailable):
                misfit = f"{self._batch._script.name} asked for {len(group)} answers and got {str(reply)[:100]}"
                reply = BrokerUnavailable(misfit)
            for item in group:
                item.take(reply)
        if misfit:
            raise ValueError(misfit)

    def _queue(self) -> None:
        if not self._waiting:
            return
        if self._queued:
            self._pipeline.weigh()
        else:
            self._queued = True
            self._pipeline.add(self)
