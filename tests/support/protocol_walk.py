"""A random walk through the protocol: its actors do what their rules allow, in any order, late, twice, with old claims."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from skillstream.broker import Ending, Settlement
from skillstream_schemas import keys as arq_keys
from skillstream_schemas.errors import BrokerRefused, StreamLost
from skillstream_schemas.event import FinalEvent
from skillstream_schemas.ids import START, SUBMISSION, EventId
from skillstream_schemas.state import TaskState
from skillstream_worker.broker import Lease, WorkerBroker
from skillstream_worker.openings import AlreadyFinal, MustClose, Opened

from .protocol_bench import AGENT, FINAL_FIELDS, ProtocolBench, a_request, lease_of

Step = Callable[[], Awaitable[object]]


@dataclass
class Player:
    """One claim and what its worker believes: the attempt, the last entry that it knows of, whether it adds no more."""

    lease: Lease
    attempt: int = 0
    last: int = 1
    is_silent: bool = False


class ProtocolWalk:
    """Responsible for one task's walk: two workers, a submitter, a canceller, a closer, and time itself.

    `history` names the steps taken. What each actor believes may be old: answers get lost, leases lapse at any moment.
    """

    def __init__(self, bench: ProtocolBench, brokers: list[WorkerBroker], task_id: str, chance: random.Random) -> None:
        self.history: list[str] = []
        self._bench, self._brokers, self._task_id, self._chance = bench, brokers, task_id, chance
        self._member = arq_keys.job_id(AGENT, task_id)
        self._request = a_request(max_attempts=chance.randint(1, 4), on_retry=chance.choice(["restart", "resume", "fail"]))
        self._players: list[Player] = []
        self._tops = [SUBMISSION]
        self._entries: list[tuple[str, dict[str, str]]] = []
        self._was_queued = False
        self._knows_final = False

    async def step(self) -> None:
        """Takes one step and checks all invariants from outside."""
        always: list[Step] = [self.submit, self.claim, self.claim, self.lapse, self.abort, self.cancel]
        always += [self.close, self.settle]
        own: list[Step] = [self.open, self.open, self.emit, self.emit, self.emit, self.lose, self.hand_back]
        own += [self.renew, self.release, self.finish]
        step = self._chance.choice([*always, *own] if self._players else always)
        self.history.append(step.__name__)
        await step()
        self.check()

    async def end(self) -> None:
        """Lets one worker do what is left, undisturbed; the task then has its final and its job is gone."""
        await self.submit()
        while not self._knows_final:
            self.history.append("end")
            await self.lapse()
            await self.claim()
            player = self._players[-1]
            await self._open(player)
            if player.attempt:
                await self._finish(player)
            self.check()
        await self._brokers[0].settle(AGENT, [Settlement(self._task_id)])
        self.check()
        assert sum(fields["type"] == "final" for _, fields in self._entries) == 1
        assert self._member not in self._bench.queued()

    async def submit(self) -> None:
        submitted = await self._broker().submit(self._task_id, self._request)
        if not submitted.ended or self._chance.random() < 0.1:  # the second half of a submission may come late
            await self._broker().enqueue(AGENT, self._task_id)
            self._was_queued = True

    async def claim(self) -> None:
        broker, owner = self._broker(), self._bench.lease_value(self._task_id)
        for job in (await broker.claim(AGENT, [self._task_id], 0)).won:
            assert owner is None, f"a job of {owner} was claimed"
            self._players.append(Player(lease_of(job, broker.worker)))

    async def lapse(self) -> None:
        self._bench.lapse(self._task_id)

    async def abort(self) -> None:
        """What arq's own abort does to a running job."""
        self._bench.outside.zadd(arq_keys.queue(AGENT), {self._member: 1}, xx=True)

    async def cancel(self) -> None:
        if self._chance.random() < 0.2:
            await self._broker().request_cancel(self._task_id, "enough")

    async def close(self) -> None:
        if self._chance.random() < 0.1:
            await self._close(self._chance.choice(self._tops), "router")

    async def settle(self) -> None:
        if self._knows_final:
            await self._broker().settle(AGENT, [Settlement(self._task_id)])

    async def open(self) -> None:
        await self._open(self._player())

    async def emit(self) -> None:
        await self._add(self._player(), {"type": "chunk", "text": "x"})

    async def lose(self) -> None:
        """An entry arrives, its answer does not: what its worker knows stays as it was."""
        player = self._player()
        last = player.last
        await self._add(player, {"type": "chunk", "text": "x"})
        player.last = last

    async def hand_back(self) -> None:
        await self._add(self._player(), {"type": "status", "handed_back": self._chance.choice(["drain", "retry"])})

    async def renew(self) -> None:
        await self._broker().renew(AGENT, [player.lease for player in self._players])

    async def release(self) -> None:
        owner, lease = self._bench.lease_value(self._task_id), self._player().lease
        assert await self._broker().release(lease) is (owner == lease.value)
        assert owner == lease.value or self._bench.lease_value(self._task_id) == owner

    async def finish(self) -> None:
        player = self._player()
        if player.attempt:
            await self._finish(player)

    async def _open(self, player: Player) -> None:
        broker = self._broker()
        seen = self._chance.choice([None, self._tops[-1], self._chance.choice(self._tops)])
        match await broker.open_attempt(player.lease, None, seen=seen, keep=1):
            case Opened(attempt=attempt):
                player.attempt, player.last = attempt, max(1, player.last if player.attempt == attempt else 1)
            case AlreadyFinal():
                self._knows_final = True
            case MustClose(top=top):
                await self._close(top, player.lease.worker)

    async def _add(self, player: Player, fields: dict[str, str]) -> None:
        if not player.attempt or player.is_silent:
            return
        broker = self._broker()
        event_id = EventId(player.attempt, player.last + 1)
        flat = [part for pair in {**fields, "at": "1"}.items() for part in pair]
        key = self._bench.keys.events(self._task_id)
        try:
            added = await broker.pipeline.call("XADD", key, "NOMKSTREAM", str(event_id), *flat)
        except BrokerRefused:
            added = None
        if added is None:
            await self._look(player)
        else:
            player.last += 1

    async def _look(self, player: Player) -> None:
        """Rule P5: what stands on top tells what the refusal meant."""
        top = await self._broker().look(self._task_id, player.attempt)
        if top.id is None or top.id.attempt > player.attempt or top.claim != player.lease.claim:
            player.is_silent = True
        else:
            player.last = top.id.seq

    async def _finish(self, player: Player) -> None:
        player.is_silent = True  # a worker that has sent its final may only send it again
        last = EventId(player.attempt, player.last)
        finish = await self._broker().finish(player.lease, last, EventId(last.attempt, last.seq + 1), FINAL_FIELDS)
        if finish.is_there:
            self._knows_final = True
        else:
            await self._look(player)

    async def _close(self, seen: EventId, closer: str) -> None:
        final = FinalEvent(id=START, at=0, state=TaskState.FAILED, text="", metadata={}, chunks=0, error="closed")
        try:
            written = await self._broker().close_task(self._task_id, Ending(final, seen, 0 if seen.attempt else None), closer)
        except StreamLost:
            return
        if written is not None:
            self._knows_final = True
            if str(written.id) not in dict(self._entries):
                assert written.id == EventId(seen.attempt + 1, 2), f"closed with what was read up to {seen}"

    def _broker(self) -> WorkerBroker:
        return self._chance.choice(self._brokers)

    def _player(self) -> Player:
        # the newest one mostly; the others are those that stalled and wake up
        return self._players[-1] if self._chance.random() < 0.6 else self._chance.choice(self._players)

    def check(self) -> None:
        """Guarantees G1 to G6 and G8, as they show from outside at this moment."""
        with self._bench.outside.pipeline(transaction=True) as looks:
            looks.xrange(self._bench.keys.events(self._task_id))
            looks.zscore(arq_keys.queue(AGENT), self._member)
            looks.xrange(self._bench.keys.inbox_of(self._task_id))
            entries, score, inbox = looks.execute()
        assert entries[: len(self._entries)] == self._entries, "an entry changed or went away"
        self._entries = entries
        ids = [EventId.parse(event_id) for event_id, _ in entries]
        assert ids[:1] in ([], [SUBMISSION])
        assert all(_follows(earlier, later) for earlier, later in pairwise(ids)), f"not dense: {[*map(str, ids)]}"
        finals = [place for place, (_, fields) in enumerate(entries) if fields["type"] == "final"]
        assert finals in ([], [len(entries) - 1]), "more than one final, or something follows it"
        claims = [fields["claim"] for _, fields in entries if "claim" in fields]
        assert len(claims) == len(set(claims)), "a claim opened twice"
        assert score is not None or finals or not self._was_queued, "the job was settled before the final"
        self._check_rings([fields["kind"] for _, fields in inbox if fields["task"] == self._task_id], finals)
        self._tops += ids[-1:]

    def _check_rings(self, rings: list[str], finals: list[Any]) -> None:
        openings = [fields["worker"] for _, fields in self._entries if "claim" in fields]
        is_closed = bool(finals) and self._entries[-1][1].get("error") == "closed"
        assert rings.count("final") == len(finals)
        assert rings.count("opened") == len(openings) - is_closed
        assert rings.count("submitted") == len(self._entries[:1])


def _follows(earlier: EventId, later: EventId) -> bool:
    if later.attempt == earlier.attempt:
        return later.seq == earlier.seq + 1
    return later.attempt == earlier.attempt + 1 and later.seq == 1
