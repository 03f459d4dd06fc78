"""Any interleaving of the protocol's steps: two workers, a submitter, a canceller, a reaper and a router, as a state machine.

Each rule is one step of the product, over its brokers and its store, on a real server. Between a read and the write that
follows from it anything may happen, and what was sent may arrive late.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import TypeVar

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from skillstream.broker import CancelRecorded, Ending, Settlement
from skillstream.closing import Verdict, read_transcript
from skillstream_router.diagnosis import Close, Enqueue, diagnose
from skillstream_router.projection import Notice, project
from skillstream_router.store import Turns
from skillstream_schemas import keys as arq_keys
from skillstream_schemas.event import FinalEvent
from skillstream_schemas.ids import START, SUBMISSION, EventId
from skillstream_schemas.request import OnRetry
from skillstream_schemas.state import TaskState
from tests.support.protocol_bench import AGENT, a_request
from tests.support.submissions import submission_of, submit_half

from .player import Copy, Player
from .starts import BACK, FATES, RETRIES, STARTS
from .world import PAYER, PRICE_MICROS, World, are_dense, text_of

REASON = "enough"
_DEADLINE_MS = 600_000
T = TypeVar("T")


class Interleavings(RuleBasedStateMachine):
    """Responsible for one task, what each actor believes of it, and what must hold whatever they do.

    The steps share one rule: hypothesis leaves whole rules out of an example, and without an opening there is little to see.
    """

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.task_id = world.next_task_id()
        self.member = arq_keys.job_id(AGENT, self.task_id)
        self.entries: list[tuple[str, dict[str, str]]] = []
        self.was_queued = self.was_canceled = False
        self._players: list[Player] = []
        self._copies: list[Copy] = []
        self._closings: list[tuple[Ending, str]] = []
        self._fetched: list[Turns] = []

    @initialize(start=st.sampled_from(list(STARTS)), attempts=st.sampled_from([4, 1, 2, 3]), on_retry=RETRIES)
    def begin(self, start: str, attempts: int, on_retry: OnRetry) -> None:
        """The submission and what followed at once; what comes now is about this task."""
        options = {"max_attempts": attempts, "on_retry": on_retry, "deadline": self.world.now_ms() + _DEADLINE_MS}
        self.request = a_request(payer=PAYER, price_micros=PRICE_MICROS, **options)
        submission = submission_of(self.task_id, self.request)
        if start == "half submitted":
            self.world.run(submit_half(self.world.client, submission))
        else:
            assert self.world.run(self.world.client.submit(submission)) is None
            self.was_queued = True
        for step in STARTS[start]:
            getattr(self, step)(0, FATES[-1] if step == "take" else FATES[0])

    @rule(step=st.runner().flatmap(lambda machine: st.sampled_from(machine.steps())), back=BACK, fate=st.sampled_from(FATES))
    def act(self, step: str, back: int, fate: str) -> None:
        """Somebody takes a step; `back` says whose or with what (0: the newest), `fate` what becomes of an entry that is sent."""
        getattr(self, step)(back, fate)

    def steps(self) -> list[str]:
        """The steps for which there is anything, the likely ones more than once; examples favour the first and the last."""
        steps = ["go_on"] * 16 if self._players else []
        steps += ["take_over", "take_over", "take", "cancel", "submit", "reap", "read_to_end", "fetch"]
        if self._players:
            steps += ["finish", "lapse", "abort", "open_again", "hand_back", "release", "renew"]
        kept = {"arrive": self._copies, "commit": self._fetched, "close": self._closings, "wake": self._stalled}
        steps += [name for name, things in kept.items() if things for _ in range(5)]
        if any(player.verdict is not None for player in self._players):
            steps += ["read_to_close"] * 3
        if self._final is not None:
            steps += ["settle", "fetch", "arrive", "commit"] * 6
        return [*steps, "take_over"]

    def submit(self, back: int, fate: str) -> None:
        """Both steps again; with another message under the same id it is the first request that comes back (G6)."""
        request = a_request(message="another") if back else self.request
        stood = self.world.run(self.world.client.submit(submission_of(self.task_id, request)))
        assert stood is not None, "G6: a second task was made"
        assert stood.request == self.request, "G6: the first submission is not what counts"
        if not stood.ended:
            self._enqueue()
        self._copies.append(partial(self.world.client.enqueue, AGENT, self.task_id))

    def take(self, back: int, fate: str) -> None:
        """A worker tries to win the job, behind the end of its lease or not."""
        if fate != FATES[0]:
            self.lapse(back, fate)
        owner = self.world.lease_value(self.member)
        broker = self.world.workers[back % len(self.world.workers)]
        won = self.world.run(broker.claim(AGENT, [self.task_id], 0)).won
        assert not won or owner is None, f"G4: a job of {owner} was claimed"
        self._players += [Player(self.world, broker, job) for job in won]

    def take_over(self, back: int, fate: str) -> None:
        """A worker wins the job behind the end of its lease, and opens."""
        self.lapse(back, fate)
        self.take(back, FATES[0])
        self.open_again(0, fate)

    def lapse(self, back: int, fate: str) -> None:
        """The lease ends, whatever its worker does."""
        self.world.lapse(self.member)

    def abort(self, back: int, fate: str) -> None:
        """What a stock client's abort does to a running job."""
        self.world.outside.zadd(arq_keys.queue(AGENT), {self.member: 1}, xx=True)

    def go_on(self, back: int, fate: str) -> None:
        """A worker takes its next step: opens, reads the text behind which it goes on, or says a letter."""
        for player in self._one(self._players, back):
            self._copies += self.world.run(player.go_on(fate))

    def wake(self, back: int, fate: str) -> None:
        """A worker that stalled between its claim and its opening opens."""
        for player in self._one(self._stalled, back):
            self._copies += self.world.run(player.open())

    def open_again(self, back: int, fate: str) -> None:
        """A worker sends its opening once more."""
        for player in self._one(self._players, back):
            self._copies += self.world.run(player.open())

    def finish(self, back: int, fate: str) -> None:
        """A worker writes its final."""
        for player in self._one(self._players, back):
            self._copies += self.world.run(player.finish())

    def hand_back(self, back: int, fate: str) -> None:
        """A worker says that another attempt is to go on."""
        for player in self._one(self._players, back):
            self.world.run(player.hand_back("drain" if fate == FATES[0] else "retry"))

    def release(self, back: int, fate: str) -> None:
        """A worker gives its job back; only its own lease is freed (G4)."""
        for player in self._one(self._players, back):
            owner = self.world.lease_value(self.member)
            is_mine = owner == player.lease.value
            assert self.world.run(player.release()) is is_mine, f"G4: the lease of {owner} was released"
            assert self.world.lease_value(self.member) == (None if is_mine else owner)
            self._copies.append(player.release)

    def renew(self, back: int, fate: str) -> None:
        """A worker renews its lease; none is taken back (G4)."""
        for player in self._one(self._players, back):
            owner = self.world.lease_value(self.member)
            held = self.world.run(player.broker.renew(AGENT, [player.lease]))
            assert held == [owner == player.lease.value], f"G4: a lease of {owner} was renewed"

    def read_to_close(self, back: int, fate: str) -> None:
        """A worker that may not run the task reads what its final is to hold."""
        for player in self._one(self._players, back):
            if player.verdict is not None:
                self._read(player.verdict, player.lease.worker)

    def arrive(self, back: int, fate: str) -> None:
        """A command that was sent before arrives, once more or at last."""
        for copy in self._one(self._copies, back):
            self.world.run(self.world.sent(copy))

    def cancel(self, back: int, fate: str) -> None:
        """A cancellation is recorded; the canceller reads where nobody writes on (G9)."""
        recorded = self.world.run(self.world.client.request_cancel(self.task_id, REASON))
        if isinstance(recorded, CancelRecorded):
            self.was_canceled = True
            if recorded.is_waiting:
                self._read(Verdict(TaskState.CANCELED, REASON), "canceller")

    def close(self, back: int, fate: str) -> None:
        """Somebody outside the attempt ends the task with what he read."""
        for ending, closer in self._one(self._closings, back):
            self.world.run(self.world.client.close_task(self.task_id, ending, closer))

    def reap(self, back: int, fate: str) -> None:
        """The reaper looks at the task, behind its deadline or before; what it decides to close is closed later."""
        (seen,) = self.world.run(self.world.router.examine([(self.task_id, AGENT)]))
        record = self.world.run(self.world.store.tasks_by_id([self.task_id])).get(self.task_id)
        now_ms = self.world.now_ms() + (_DEADLINE_MS * 2 if back else 0)
        match None if record is None else diagnose(record, seen, now_ms, self.world.settings):
            case Enqueue():
                self._enqueue()
            case Close(verdict):
                self._read(verdict, "router")

    def read_to_end(self, back: int, fate: str) -> None:
        """A worker stalls beyond its lease and the deadline: the reaper reads what its final is to hold."""
        self.lapse(back, fate)
        self.reap(1, fate)

    def fetch(self, back: int, fate: str) -> None:
        """The router reads both ends of the stream."""
        (ends,) = self.world.run(self.world.router.fetch([self.task_id]))
        assert ends.first is not None
        assert ends.top is not None
        at = self.world.now_ms() if self.was_canceled else None
        seen = project(Notice(self.task_id, cancel_requested_at=at), ends.first, ends.top)
        self._fetched.append(Turns(seen.record, seen.message, seen.reply))

    def commit(self, back: int, fate: str) -> None:
        """The router writes down what it read, and settles what is left behind a final (G7)."""
        for turns in self._one(self._fetched, back):
            self.world.run(self.world.store.apply([turns]))
            if turns.record.state.is_final:
                self.settle(back, fate)

    def settle(self, back: int, fate: str) -> None:
        """Whoever knows of the final takes the job off the queue."""
        if self._final is not None:
            self.world.run(self.world.client.settle(AGENT, [Settlement(self.task_id)]))

    @invariant()
    def holds(self) -> None:
        """G1 to G6 and G8, as they show from outside at this moment."""
        entries, score, rings = self.world.seen(self.task_id, self.member)
        if not entries:
            return
        assert entries[: len(self.entries)] == self.entries, "G2: an entry changed or went away"
        self.entries = entries
        ids = [EventId.parse(event_id) for event_id, _ in entries]
        assert ids[0] == SUBMISSION
        assert are_dense(ids), f"G3: not dense: {[*map(str, ids)]}"
        finals = [place for place, (_, fields) in enumerate(entries) if fields["type"] == "final"]
        assert finals in ([], [len(entries) - 1]), "G1, G2: more than one final, or something follows it"
        claims = [int(fields["claim"]) for _, fields in entries if "claim" in fields]
        assert all(older < newer for older, newer in pairwise(claims)), "G4: an older claim opened behind a newer one"
        assert self._final is None or self._final["text"] == text_of(entries), (
            "G5: the text of the final is not that of the stream"
        )
        assert score is not None or finals or not self.was_queued, "G8: the job left the queue before its final"
        assert (rings.count("final"), rings.count("submitted")) == (len(finals), 1), f"G8: rings {rings}"

    @invariant()
    def is_paid_once(self) -> None:
        """G7: the row goes forward and says what the stream says; money moves once, for a completed task."""
        state, transfers = self.world.booked(self.task_id)
        is_final = state is not None and TaskState(state).is_final
        assert not is_final or (self._final or {}).get("state") == state, f"G7: {state} in the database"
        assert transfers == (2 if state == "completed" else 0), f"G7: {transfers} transfers of a task that is {state}"

    def teardown(self) -> None:
        """One worker is left undisturbed: the task ends, canceled where that was asked for, and its job is gone (G1, G8, G9)."""
        if not hasattr(self, "request"):
            return
        had_final = self._final is not None
        self._enqueue()
        while self._final is None:
            self.take_over(0, FATES[0])
            player = self._players[-1]
            self.world.run(player.run())
            if player.verdict is not None:
                self._read(player.verdict, player.lease.worker)
                self.close(0, FATES[0])
            self.holds()
        if self.was_canceled and not had_final:
            final = self._final
            assert (final["state"], final.get("reason")) == ("canceled", REASON), "G9: a cancellation was forgotten"
        self.fetch(0, FATES[0])
        self.commit(0, FATES[0])
        self.is_paid_once()
        assert self.world.seen(self.task_id, self.member)[1] is None, "G8: the job is left"
        self.world.forget(self.task_id, self.entries)

    @property
    def _stalled(self) -> list[Player]:
        return [player for player in self._players[:-1] if not player.has_opened]

    @property
    def _final(self) -> dict[str, str] | None:
        top = self.entries[-1][1] if self.entries else {}
        return top if top.get("type") == "final" else None

    def _enqueue(self) -> None:
        self.world.run(self.world.client.enqueue(AGENT, self.task_id))
        self.was_queued = True

    def _read(self, verdict: Verdict, closer: str) -> None:
        known = self.world.run(read_transcript(self.world.client, self.task_id))
        assert known is not None
        final = FinalEvent(id=START, at=0, state=verdict.state, text=known[1].text, metadata={}, chunks=0)
        final = final.model_copy(update={"error": verdict.error, "reason": verdict.reason})
        self._closings.append((Ending(final, known[1].cursor, known[1].keep), closer))

    @staticmethod
    def _one(among: list[T], back: int) -> list[T]:
        """The newest, or one of those before it; none where there is none."""
        return among[-1 - min(back, len(among) - 1) :][:1] if among else []
