"""The worker's seam to Redis: claim, renew, release, open, finish, wake, announce."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from skillstream.broker import FIRST_ENTRY, WAKE_CAP, WAKE_TTL_MS, Broker, checked, flat
from skillstream.clock import Clock
from skillstream.connection import Connection
from skillstream.outage import Outage
from skillstream.request_reader import request_of
from skillstream.resp import Argument, Reply, ReplyError, blob
from skillstream_schemas import keys as arq_keys
from skillstream_schemas.card import AgentCard
from skillstream_schemas.errors import BrokerUnavailable
from skillstream_schemas.ids import EventId
from skillstream_schemas.request import TaskRequest
from skillstream_schemas.settings import Settings

from .openings import (
    AlreadyFinal,
    CloseCause,
    Gone,
    MustClose,
    MustRead,
    Opened,
    Opening,
    Stale,
    Superseded,
)
from .scripts import ANNOUNCE, CLAIM, EXTEND, FINISH, OPEN, RELEASE, RENEW

_CLAIM_DIGITS = 20
"""µs of broker time have 16: a longer number is nobody's claim."""


class ClaimedJob(NamedTuple):
    """A job whose lease is ours. `claims` counts how often it was claimed; `payload` is None where the job key is gone."""

    task_id: str
    claim: int
    claims: int
    payload: bytes | None


@dataclass(frozen=True, slots=True)
class Claimed:
    """The answer to a claim: jobs won, task ids to try next, when the next one falls due (unix ms), members removed."""

    won: list[ClaimedJob]
    further: list[str]
    due_ms: float | None
    removed: list[str]


class Lease(NamedTuple):
    """A claim on a job."""

    agent: str
    task_id: str
    worker: str
    claim: int

    @property
    def value(self) -> str:
        """What the lease's key holds while it is ours."""
        return f"{self.worker}:{self.claim}"


class Top(NamedTuple):
    """The last entry of a stream: None for its id where there is no stream."""

    id: EventId | None
    claim: int | None
    """The claim shown by the opening of the attempt that was asked for."""


class Finish(NamedTuple):
    """The answer to a final: when it was added (unix ms), None where it does not stand on the stream.

    `top` is the last entry that does in that case, if any.
    """

    at: int | None
    top: EventId | None = None


_FIRST_HEAD, _FIRST_TAIL = FIRST_ENTRY


class WorkerBroker(Broker):
    """Responsible for what workers ask of Redis; errors as those of Broker."""

    scripts = (*Broker.scripts, CLAIM, RENEW, RELEASE, OPEN, EXTEND, FINISH, ANNOUNCE)

    def __init__(self, settings: Settings, worker: str) -> None:
        super().__init__(settings)
        self.pipeline.outlasts_denial = True  # running tasks are kept where a password is changed here before it is there
        self.outage = Outage(Clock())
        self.worker = worker
        self.unanswered_bytes = 0
        """What all attempts of this worker have said without an answer, about: each looks at it before it says more."""
        self._lease_ms = int(settings.lease_s * 1000)

    async def claim(self, agent: str, candidates: Sequence[str], wanted: int) -> Claimed:
        """Takes jobs by task id, and asks for `wanted` further ids (rule P2)."""
        keys = [arq_keys.queue(agent), self.keys.wake(agent)]
        arguments: list[Argument] = [self.worker, self._lease_ms, wanted, self._stream_ttl_ms, arq_keys.job_id(agent, "")]
        for task_id in candidates:
            member = arq_keys.job_id(agent, task_id)
            keys += [arq_keys.in_progress(member), arq_keys.job(member), arq_keys.retry(member)]
            arguments.append(member)
        won, further, due, removed = await self.pipeline.run(CLAIM, keys, arguments)
        return Claimed(
            won=[_claimed(agent, item) for item in won],
            further=_task_ids(agent, further),
            due_ms=float(due) if due else None,
            removed=[member.decode(errors="backslashreplace") for member in removed],
        )

    async def ring(self, agent: str, task_ids: Sequence[str]) -> None:
        """Puts names of waiting jobs back on the wake list, for workers that have room."""
        key = self.keys.wake(agent)
        members = [arq_keys.job_id(agent, task_id) for task_id in task_ids]
        commands = (("RPUSH", key, *members), ("LTRIM", key, -WAKE_CAP, -1), ("PEXPIRE", key, WAKE_TTL_MS))
        checked(await self.pipeline.batch(commands, "ring"), "ring")

    async def renew(self, agent: str, leases: Sequence[Lease]) -> list[bool]:
        """Renews leases of one agent; False for each that was lost (rule P3)."""
        keys = [arq_keys.queue(agent)]
        arguments: list[Argument] = [self._lease_ms]
        for lease in leases:
            member = arq_keys.job_id(agent, lease.task_id)
            keys.append(arq_keys.in_progress(member))
            arguments += [member, lease.value]
        return [held == 1 for held in await self.pipeline.run(RENEW, keys, arguments)]

    async def release(self, lease: Lease, *, delay_ms: int = 0) -> bool:
        """Gives a job back, to be claimed after `delay_ms`; False where the lease was lost (rule P10)."""
        member = arq_keys.job_id(lease.agent, lease.task_id)
        keys = [arq_keys.queue(lease.agent), arq_keys.in_progress(member), arq_keys.job(member), self.keys.wake(lease.agent)]
        ttl_ms = self._stream_ttl_ms + delay_ms
        released = await self.pipeline.run(RELEASE, keys, [member, lease.value, delay_ms, ttl_ms, WAKE_CAP, WAKE_TTL_MS])
        return bool(released == 1)

    async def open_attempt(
        self, lease: Lease, stock_request: TaskRequest | None, *, seen: EventId | None = None, keep: int = 0
    ) -> Opening:
        """Opens the next attempt for a claim (rules P4, P11); `keep` code points of what was read up to `seen` stand."""
        task_id = lease.task_id
        keys = [self.keys.events(task_id), self.keys.cancel(task_id), self.keys.inbox_of(task_id)]
        arguments: list[Argument] = [task_id, self.worker, lease.claim, self._stream_ttl_ms, lease.agent]
        arguments += ["" if seen is None else str(seen), keep or ""]
        if stock_request is not None:
            arguments += flat(stock_request.to_fields())
        first = _FIRST_HEAD + blob(keys[0]) + _FIRST_TAIL
        return _opening(*await self.pipeline.run_and_read(OPEN, keys, arguments, first))

    async def finish(self, lease: Lease, last: EventId, fields: Sequence[str]) -> Finish:
        """Adds a final, given without its time, right behind the attempt's last entry and rings (rule P6)."""
        keys = [self.keys.events(lease.task_id), self.keys.inbox_of(lease.task_id)]
        attempt, seq = last
        ids = (f"{attempt}-{seq}", f"{attempt}-{seq + 1}")
        arguments: list[Argument] = [lease.task_id, lease.claim, *ids, self._stream_ttl_ms, *fields]
        outcome, top, *at = await self.pipeline.run(FINISH, keys, arguments)
        if outcome == b"ok":
            return Finish(int(at[0]))
        return Finish(None, EventId.parse(top.decode()) if top else None)

    async def look(self, task_id: str, attempt: int) -> Top:
        """What stands on top of a stream, and the claim shown by the opening of `attempt` (rule P5)."""
        key = self.keys.events(task_id)
        opening_id = str(EventId(attempt, 1))
        commands = [("XREVRANGE", key, "+", "-", "COUNT", 1), ("XRANGE", key, opening_id, opening_id)]
        top, opening = checked(await self.pipeline.batch(commands, "look at the stream"), "look at the stream")
        if not top:
            return Top(None, None)
        fields = dict(zip(opening[0][1][::2], opening[0][1][1::2], strict=True)) if opening else {}
        claim = fields.get(b"claim", b"")
        return Top(EventId.parse(top[0][0].decode()), int(claim) if claim.isdigit() and len(claim) <= _CLAIM_DIGITS else None)

    async def cancel_reasons(self, task_ids: Sequence[str]) -> dict[str, str]:
        """Reasons of the cancellations that stand on the broker for these tasks."""
        replies = await self.pipeline.batch([("GET", self.keys.cancel(task_id)) for task_id in task_ids], "look for cancels")
        found = zip(task_ids, checked(replies, "look for cancels"), strict=True)
        return {task_id: reason.decode(errors="replace") for task_id, reason in found if reason is not None}

    async def extend(self, leases: Sequence[Lease], *, delay_ms: int = 0) -> None:
        """Raises the expiry of jobs, streams and cancel keys of tasks that run or are to wait (rules P10, P12).

        A task that has ended meanwhile keeps the expiry that the router gave it.
        """
        ttl_ms = self._stream_ttl_ms + delay_ms
        jobs = (arq_keys.job(arq_keys.job_id(lease.agent, lease.task_id)) for lease in leases)
        await self.pipeline.batch([("PEXPIRE", job, ttl_ms, "GT") for job in jobs], "extend expiry")
        for lease in leases:
            await self.pipeline.run(EXTEND, [self.keys.events(lease.task_id), self.keys.cancel(lease.task_id)], [ttl_ms])

    async def announce(self, card: AgentCard, forget_ms: int, *, leaving: bool = False) -> None:
        """Puts an agent's card on the broker, beside the skills and workers announced in the last `forget_ms`.

        `leaving` takes this worker off the card; its skills stay as long as they would without a word.
        """
        text = card.model_dump_json(exclude={"skills", "workers", "seen"})
        arguments: list[Argument] = [card.name, text, self.worker, forget_ms, "leaving" if leaving else ""]
        for skill in card.skills:
            arguments += [skill.name, skill.model_dump_json()]
        await self.pipeline.run(ANNOUNCE, [self.keys.agents], arguments)

    async def is_offered(self, agent: str, skill: str) -> bool:
        """True where a worker has announced this skill lately."""
        card = (await self.cards(agent)).get(agent)
        return card is not None and skill in card.seen

    async def server_claim(self) -> int:
        """A claim number from server time, for a worker that claims by other means (rule P16)."""
        seconds, micros = await self.pipeline.call("TIME")
        return int(seconds) * 1_000_000 + int(micros)


class WakeLine:
    """Responsible for one connection that blocks until a job of an agent is enqueued."""

    def __init__(self, broker: Broker, agent: str) -> None:
        self._broker, self._agent = broker, agent
        self._key = broker.keys.wake(agent)
        self._connection: Connection | None = None

    async def wait(self, count: int, timeout_s: float) -> list[str]:
        """Task ids of jobs just enqueued, `count` at most; empty after `timeout_s`. Raises BrokerUnavailable."""
        if self._connection is None or not self._connection.is_open:
            self._connection = await self._broker.pipeline.connect(self._key)
        # 0 would block for ever
        block_s = max(timeout_s, 0.001)
        answer_s = block_s + self._broker.settings.answer_timeout_s
        command = ("BLMPOP", f"{block_s:.3f}", 1, self._key, "LEFT", "COUNT", count)
        try:
            reply = await self._connection.call(*command, timeout_s=answer_s)
        except ReplyError as error:
            self._connection.close(str(error))  # another server may have the list by now
            await self._broker.pipeline.heed(error)
            raise BrokerUnavailable(f"waiting for jobs: {error}") from None
        return [] if reply is None else _task_ids(self._agent, reply[1])

    def close(self) -> None:
        """Closes the connection; whoever waits gets BrokerUnavailable."""
        if self._connection is not None:
            self._connection.close()


def _task_ids(agent: str, members: Sequence[bytes]) -> list[str]:
    ids = (arq_keys.task_of_job(agent, member.decode(errors="replace")) for member in members)
    return [task_id for task_id in dict.fromkeys(ids) if task_id is not None]


def _claimed(agent: str, item: Sequence[Reply]) -> ClaimedJob:
    member, claim, claims, payload = item
    # asked for by name, so that its form is known
    task_id = member.decode()[len(agent) + 3 :]
    return ClaimedJob(task_id, int(claim), int(claims), payload or None)


def _opening(reply: Sequence[Reply], first: Sequence[Reply]) -> Opening:
    match reply[0]:
        case b"final":
            fields = [part.decode(errors="replace") for part in reply[2]]
            return AlreadyFinal(dict(zip(fields[::2], fields[1::2], strict=True)))
        case b"superseded":
            return Superseded()
        case b"gone":
            return Gone()
        case b"stale":
            return Stale()
    request = request_of(first[0][1])
    match reply[0]:
        case b"opened" | b"same":
            reason = reply[3]
            return Opened(reply[1], reply[2], request, None if reason is None else reason.decode(errors="replace"))
        case b"resume":
            return MustRead(request)
        case cause:
            top = EventId.parse(reply[1].decode())
            return MustClose(CloseCause(cause.decode()), top, request, reply[2].decode(errors="replace"))
