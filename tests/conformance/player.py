"""One claim and what its worker believes of its task, step by step."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING

from skillstream.closing import Verdict, read_transcript
from skillstream.transcript import Transcript
from skillstream_schemas.errors import BrokerRefused
from skillstream_schemas.ids import EventId
from skillstream_schemas.state import TaskState
from skillstream_worker.broker import ClaimedJob, WorkerBroker
from skillstream_worker.endings import verdict_of
from skillstream_worker.finals import final_fields
from skillstream_worker.openings import MustClose, MustRead, Opened, Stale
from skillstream_worker.outcome import End
from tests.support.protocol_bench import AGENT, lease_of

if TYPE_CHECKING:
    from .world import World

Copy = Callable[[], Awaitable[object]]
"""A command to be sent once more, as it was."""
_letters = cycle("abcdefghijklmnopqrstuvwxyz")


class Player:
    """Responsible for the steps of one claim, in the order that a worker keeps for itself; its answers may be lost.

    `verdict` is how it has to close the task, where it may not run it.
    """

    def __init__(self, world: World, broker: WorkerBroker, job: ClaimedJob) -> None:
        self.broker = broker
        self.lease = lease_of(job, broker.worker)
        self.verdict: Verdict | None = None
        self._world = world
        self._task_id = job.task_id
        self._attempt = 0
        self._last = 1
        self._text = ""
        self._chunks = 0
        self._sent: str | None = None  # a letter of which nobody knows whether it arrived
        self._is_silent = self._is_finishing = False
        self._must_read = False
        self._known: Transcript | None = None
        self._cancel_reason: str | None = None

    def __repr__(self) -> str:
        return f"<Player {self.lease.value} attempt={self._attempt} last={self._last}>"

    @property
    def has_opened(self) -> bool:
        """True once an attempt is its own."""
        return self._attempt > 0

    async def run(self) -> None:
        """All that is left, undisturbed."""
        await self.open()
        while self._must_read:
            await self.read()
            await self.open()
        await self.finish()

    async def go_on(self, fate: str) -> list[Copy]:
        """The next step of an attempt that nothing ends; `fate` is that of the letter that it says."""
        if self._must_read:
            await self.read()
            return []
        return await self.emit(fate) if self._attempt else await self.open()

    async def open(self) -> list[Copy]:
        """Opens the attempt, behind what was read; returns the command to be sent again."""
        known = self._known
        keep = 0 if known is None else len(known.text)
        command = partial(self.broker.open_attempt, self.lease, None, seen=None if known is None else known.cursor, keep=keep)
        opening = await command()
        self._known = None if isinstance(opening, Stale) else known
        self._must_read = isinstance(opening, MustRead | Stale)
        if isinstance(opening, MustClose):
            self.verdict = verdict_of(opening)
        if isinstance(opening, Opened):
            self._cancel_reason = opening.cancel_reason
            if not self._attempt:
                self._attempt, self._text = opening.attempt, "" if known is None else known.text
        return [command]

    async def read(self) -> None:
        """Reads the text behind which the attempt goes on."""
        if self._must_read:
            known = await read_transcript(self.broker, self._task_id)
            assert known is not None
            self._known = known[1]

    async def emit(self, fate: str) -> list[Copy]:
        """Says a letter; or finds out about the last one first. What is on its way is returned, to arrive later."""
        if not self._attempt or self._is_silent or self._is_finishing:
            return []
        if self._sent is not None:
            return await self._send_again()
        self._sent = next(_letters)
        command = self._adding(type="chunk", text=self._sent)
        if fate != "on its way":
            is_added = await command()
            if fate == "answered":
                await self._learn(is_added)
        return [command]

    async def hand_back(self, why: str) -> None:
        """Says that another attempt is to go on, and nothing more."""
        if self._attempt and self._sent is None and not self._is_silent and not self._is_finishing:
            self._is_silent = await self._adding(type="status", handed_back=why)()
            if not self._is_silent:
                await self._look()

    async def release(self) -> bool:
        """Gives the job back."""
        return await self.broker.release(self.lease)

    async def finish(self) -> list[Copy]:
        """Writes the final, or sends it again; returns the command."""
        if not self._attempt or self._is_silent:
            return []
        if self._sent is not None:
            return await self._send_again()
        self._is_finishing = True
        end = End(TaskState.COMPLETED)
        if self._cancel_reason is not None:
            end = End(TaskState.CANCELED, reason=self._cancel_reason)
        last = EventId(self._attempt, self._last)
        fields = final_fields(AGENT, end, self._text, self._chunks, {})
        command = partial(self.broker.finish, self.lease, last, fields)
        if (await command()).at is None:
            self._is_silent = True
        return [command]

    async def _send_again(self) -> list[Copy]:
        """An id once sent keeps its content (rule P5)."""
        assert self._sent is not None
        place, command = self._last + 1, self._adding(type="chunk", text=self._sent)
        await self._look()
        if not self._is_silent and self._last + 1 == place:
            await self._learn(await command())
        return [command]

    async def _learn(self, is_added: bool) -> None:
        if is_added:
            self._arrived()
        else:
            await self._look()

    async def _look(self) -> None:
        """What stands on top tells what a missing answer meant (rule P5)."""
        top = await self.broker.look(self._task_id, self._attempt)
        if top.id is None or top.id.attempt != self._attempt or top.claim != self.lease.claim:
            self._is_silent = True
        elif top.id.seq > self._last and self._sent is not None:
            self._arrived()

    def _arrived(self) -> None:
        assert self._sent is not None
        self._text += self._sent
        self._chunks += 1
        self._last += 1
        self._sent = None

    def _adding(self, **fields: str) -> Callable[[], Awaitable[bool]]:
        flat = [part for pair in {**fields, "at": "1"}.items() for part in pair]
        key = self._world.keys.events(self._task_id)
        return partial(self._add, key, str(EventId(self._attempt, self._last + 1)), flat)

    async def _add(self, key: str, event_id: str, flat: list[str]) -> bool:
        try:
            return await self.broker.pipeline.call("XADD", key, "NOMKSTREAM", event_id, *flat) is not None
        except BrokerRefused:
            return False
