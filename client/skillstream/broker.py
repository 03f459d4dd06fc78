"""The client's seam to Redis: the only file of this package that names commands and keys together."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from pydantic import ValidationError

from skillstream_schemas import keys as arq_keys
from skillstream_schemas.card import AgentCard
from skillstream_schemas.errors import (
    BrokerRefused,
    BrokerUnavailable,
    MalformedEntry,
    NotReplicated,
    ShardsMismatch,
    SkillstreamError,
    StreamLost,
)
from skillstream_schemas.event import FinalEvent
from skillstream_schemas.ids import EventId
from skillstream_schemas.request import HistoryMessage, TaskRequest
from skillstream_schemas.settings import Settings

from .batching import Call, Next, ScriptBatch
from .cluster import caller_of
from .entries import Entry, entries_of, final_of, id_of, text_of
from .request_reader import request_of
from .resp import Argument, Reply, ReplyError, pack_around
from .scripts import CANCEL, CLOSE, ENQUEUE, SETTLE, SUBMIT, Script

log = logging.getLogger(__name__)

FIRST_ENTRY = pack_around(("XRANGE",), ("-", "+", "COUNT", 1))
"""What stands before and behind the key of a stream whose first entry is asked for."""
WAKE_CAP = 10_000
WAKE_TTL_MS = 3_600_000
_RESULT_TTL_MS = 3_600_000
_REPLICATION_MS = 1000


class Submission(NamedTuple):
    """A task to put on the broker: `fields` are those of its request as name, value, …"""

    agent: str
    task_id: str
    fields: Sequence[str]
    delay_ms: int = 0


class Submitted(NamedTuple):
    """What stood on a stream before a submission: `request` is the first task's, `ended` if it has its final."""

    request: TaskRequest
    ended: bool


@dataclass(frozen=True, slots=True)
class CancelRecorded:
    """A cancellation stands on the broker; `top` was the stream's last entry, `is_waiting` says that no attempt writes on."""

    top: EventId
    agent: str
    is_waiting: bool


@dataclass(frozen=True, slots=True)
class Ending:
    """How `close` writes the end of a task: fields of the final, and what is kept of the text read up to `seen`."""

    final: FinalEvent
    seen: EventId
    keep: int | None


class Settlement(NamedTuple):
    """A job whose task has its final: `result` is what arq keeps for a stock client, or None."""

    task_id: str
    result: bytes | None = None


class Broker:
    """Responsible for what every part asks of Redis: submit, enqueue, cancel, close, settle, and reads.

    Errors: BrokerUnavailable and BrokerRefused from every method, MalformedEntry where an entry is no event.
    """

    scripts: Sequence[Script] = (SUBMIT, ENQUEUE, CANCEL, CLOSE, SETTLE)

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.keys = settings.keys
        self.pipeline = caller_of(settings, self.scripts)
        self._stream_ttl_ms = int(settings.stream_ttl_s * 1000)
        self.submits = ScriptBatch(self.pipeline, SUBMIT)
        self._enqueues = ScriptBatch(self.pipeline, ENQUEUE, (WAKE_CAP, WAKE_TTL_MS))

    async def open(self) -> Self:
        """Connects and checks the number of shards; raises BrokerUnavailable or ShardsMismatch."""
        await self.pipeline.open()
        mine = str(self.settings.shards).encode()
        try:
            # read first: a follower's rights do not let it write, and only the first process of a broker has to
            known = await self.pipeline.call("GET", self.keys.shards, step="check shards")
            if known is None:
                known = await self.pipeline.call("SET", self.keys.shards, mine, "NX", "GET", step="check shards")
            if known is not None and known != mine:
                theirs = known.decode(errors="replace")
                raise ShardsMismatch(f"the broker has {theirs} shards, this process {self.settings.shards}")
        except BaseException:
            await self.close()
            raise
        return self

    async def close(self) -> None:
        """Closes the connection; twice is safe."""
        await self.pipeline.close()

    async def submit(self, submission: Submission) -> Submitted | None:
        """Puts a request on its stream and, behind that answer, its job on the queue (rule P1); None where both are new.

        Where a request stands on the stream already it is returned, and nothing is queued: see `enqueue`.
        """
        return stood(await self.submits.run(self.call_of(submission)))

    async def submit_many(self, submissions: Sequence[Submission]) -> list[Submitted | SkillstreamError | ReplyError | None]:
        """The same for many, each sent once; an error stands in its place: `submit` tries that one on."""
        replies = await self.submits.run_once([self.call_of(submission) for submission in submissions])
        return [reply if isinstance(reply, ReplyError | BrokerUnavailable) else _stood_or_error(reply) for reply in replies]

    def call_of(self, submission: Submission) -> Call:
        """Both steps as a call of `submits`; `stood` reads the answer."""
        agent, task_id, fields, delay_ms = submission
        arguments: tuple[Argument, ...] = (task_id, self._stream_ttl_ms + delay_ms, len(fields), *fields)
        then = Next(self._enqueues, self._job(agent, task_id, delay_ms), _is_new)
        shared = (self.keys.inbox_of(task_id),)
        return Call(shared, (self.keys.events(task_id),), arguments, sum(map(len, fields)), then)

    def _job(self, agent: str, task_id: str, delay_ms: int) -> Call:
        member = arq_keys.job_id(agent, task_id)
        shared = (arq_keys.queue(agent), self.keys.wake(agent))
        return Call(shared, (arq_keys.job(member),), (member, delay_ms, self._stream_ttl_ms + delay_ms))

    async def enqueue(self, agent: str, task_id: str, *, delay_ms: int = 0) -> None:
        """Puts the job of a submitted task on its agent's queue (rule P1, step 2)."""
        await self._enqueues.run(self._job(agent, task_id, delay_ms))

    async def confirm_replicated(self, submissions: Sequence[Submission]) -> None:
        """Waits until a replica has all that was written of tasks and jobs; raises NotReplicated after a second."""
        written = (key for s in submissions for key in (self.keys.events(s.task_id), arq_keys.queue(s.agent)))
        for link in {self.pipeline.link_of(key) for key in written}:
            if await link.call("WAIT", 1, _REPLICATION_MS) < 1:
                raise NotReplicated

    async def request_cancel(self, task_id: str, reason: str) -> CancelRecorded | FinalEvent | None:
        """Records a cancellation; returns the final of a task that has ended, None for an unknown one (rule P9)."""
        keys = [self.keys.events(task_id), self.keys.cancel(task_id), self.keys.inbox_of(task_id)]
        reply = await self.pipeline.run(CANCEL, keys, [task_id, reason, self._stream_ttl_ms])
        match reply[0]:
            case b"unknown":
                return None
            case b"final":
                return final_of(reply[1], reply[2])
            case _:
                await self.pipeline.call("PUBLISH", self.keys.control, task_id)
                return CancelRecorded(id_of(reply[1]), text_of(reply[2], "the agent"), is_waiting=reply[3] == 1)

    async def close_task(self, task_id: str, ending: Ending, closer: str) -> FinalEvent | None:
        """Ends a task from outside its attempt (rule P8).

        Returns the final that stands on the stream now, this one or another; None where the stream went on
        since `ending.seen`: read again. Raises StreamLost where there is none.
        """
        keep = "" if ending.keep is None else ending.keep
        keys = [self.keys.events(task_id), self.keys.inbox_of(task_id)]
        arguments = [task_id, closer, str(ending.seen), keep, self._stream_ttl_ms, *arguments_of(ending.final)]
        reply = await self.pipeline.run(CLOSE, keys, arguments)
        match reply[0]:
            case b"closed":
                return ending.final.model_copy(update={"id": id_of(reply[1]), "at": int(reply[2])})
            case b"final":
                return final_of(reply[1], reply[2])
            case b"stale":
                return None
            case _:
                raise StreamLost(f"task {task_id} has no stream")

    async def settle(self, agent: str, settlements: Sequence[Settlement]) -> None:
        """Takes jobs off the queue; only for tasks whose final is known to be on their streams (rule P7)."""
        keys = [arq_keys.queue(agent)]
        arguments: list[Argument] = [_RESULT_TTL_MS]
        for settlement in settlements:
            member = arq_keys.job_id(agent, settlement.task_id)
            keys += [arq_keys.in_progress(member), arq_keys.job(member), arq_keys.retry(member), arq_keys.result(member)]
            arguments += [member, settlement.result or b""]
        await self.pipeline.run(SETTLE, keys, arguments)

    async def read(self, task_id: str, after: EventId, count: int = 500) -> list[Entry]:
        """Entries behind `after`, in order, `count` at most."""
        reply = await self.pipeline.call("XRANGE", self.keys.events(task_id), f"({after}", "+", "COUNT", count)
        return entries_of(reply)

    async def ends(self, task_id: str) -> tuple[Entry, Entry] | None:
        """The first and the last entry of a task's stream, None where there is no stream."""
        key = self.keys.events(task_id)
        commands = [("XRANGE", key, "-", "+", "COUNT", 1), ("XREVRANGE", key, "+", "-", "COUNT", 1)]
        first, last = checked(await self.pipeline.batch(commands, "read ends"), "read ends")
        return (entries_of(first)[0], entries_of(last)[0]) if first and last else None

    async def cards(self, agent: str | None = None) -> dict[str, AgentCard]:
        """Cards of one agent or of all, by name; one that cannot be read is left out."""
        if agent is not None:
            text = await self.pipeline.call("HGET", self.keys.agents, agent)
            found = {} if text is None else {agent.encode(): text}
        else:
            flat = await self.pipeline.call("HGETALL", self.keys.agents)
            found = flat if isinstance(flat, dict) else dict(zip(flat[::2], flat[1::2], strict=True))
        cards: dict[str, AgentCard] = {}
        for name, text in found.items():
            try:
                cards[name.decode()] = AgentCard.from_json(text)
            except (MalformedEntry, UnicodeDecodeError):
                continue
        return cards

    async def queue_depths(self, agent: str) -> tuple[int, int]:
        """How many jobs of an agent may be claimed now, and how many are leased or delayed."""
        seconds, micros = await self.pipeline.call("TIME")
        now_ms = int(seconds) * 1000 + int(micros) // 1000
        commands = [("ZCOUNT", arq_keys.queue(agent), "-inf", now_ms), ("ZCARD", arq_keys.queue(agent))]
        due, total = checked(await self.pipeline.batch(commands, "queue depths"), "queue depths")
        return int(due), int(total) - int(due)

    async def context_messages(self, context_id: str) -> list[HistoryMessage]:
        """Recent messages of a conversation, oldest first, as far as the router has written them."""
        reply = await self.pipeline.call("LRANGE", self.keys.context_messages(context_id), 0, -1)
        messages: list[HistoryMessage] = []
        for text in reply:
            try:
                messages.append(HistoryMessage.model_validate_json(text))
            except ValidationError:
                log.warning("a message of context %s cannot be read and is left out", context_id)
        return messages


def _is_new(reply: Reply) -> bool:
    return bool(reply[:1] == [b"new"])


def stood(reply: Reply) -> Submitted | None:
    """What stood on a stream before a submission, by the last answer of its steps: None where the job was queued behind it.

    Raises MalformedEntry where that is no request.
    """
    match reply:
        case int():
            return None
        case [b"known", list() as fields, _, kind]:
            return Submitted(request_of(fields), ended=kind == b"final")
        case _:
            raise BrokerUnavailable(f"submit: unreadable answer {str(reply)[:100]}")


def _stood_or_error(reply: Reply) -> Submitted | SkillstreamError | None:
    try:
        return stood(reply)
    except (MalformedEntry, BrokerUnavailable) as error:
        return error


def checked(replies: Sequence[Reply], step: str) -> Sequence[Reply]:
    """The replies of a batch; raises BrokerUnavailable or BrokerRefused for an error among them."""
    for reply in replies:
        if isinstance(reply, ReplyError):
            if reply.kind == "LOADING":
                raise BrokerUnavailable(f"{step}: {reply}")
            raise BrokerRefused(f"{step}: {reply}")
    return replies


def arguments_of(final: FinalEvent) -> list[str]:
    """The fields of a final as a script takes them that writes its type and time."""
    return flat({name: value for name, value in final.to_fields().items() if name not in ("type", "at")})


def flat(fields: Mapping[str, str]) -> list[str]:
    """Fields as a script or XADD takes them: name, value, name, value, …"""
    return [part for pair in fields.items() for part in pair]
