"""The router's seam to Redis: inboxes, many streams at once, context lists, expiry."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from skillstream.broker import FIRST_ENTRY, Broker, arguments_of, checked, flat
from skillstream.calling import RETRY_KINDS
from skillstream.clock import Clock
from skillstream.connection import Connection, connect
from skillstream.outage import Outage
from skillstream.pipeline import Pipeline
from skillstream.resp import Argument, Reply, ReplyError, blob, pack_around
from skillstream_schemas import keys as arq_keys
from skillstream_schemas.errors import BrokerRefused, BrokerUnavailable
from skillstream_schemas.event import FinalEvent
from skillstream_schemas.ids import EventId
from skillstream_schemas.request import TaskRequest
from skillstream_schemas.settings import Settings

from .bells import Bells
from .projection import Ends, RawEntry, Ring
from .rings import rings_of
from .scripts import CONTEXT, FORGET, LOST
from .sighting import Sighting
from .store import RecentMessages

log = logging.getLogger(__name__)

GROUP = "router"
ROUTER = "router"
"""How the router signs the openings of tasks that it ends."""
_FORGET_AFTER_MS = 3_600_000
_FIRST_HEAD, _FIRST_TAIL = FIRST_ENTRY
_TOP_HEAD, _TOP_TAIL = pack_around(("XREVRANGE",), ("+", "-", "COUNT", 1))
_MEMBERS_AT_ONCE = 500
_TRY_AGAIN = RETRY_KINDS - {"OOM"}
"""A list is a copy: a broker that is full goes without it, so that acknowledging goes on and makes room."""


class RouterBroker(Broker):
    """Responsible for what routers ask of Redis; errors as those of Broker.

    `consumer` is this router's name in the consumer group, no other process may have it.
    """

    scripts = (*Broker.scripts, CONTEXT, FORGET, LOST)

    def __init__(self, settings: Settings, consumer: str) -> None:
        super().__init__(settings)
        self.pipeline.outlasts_denial = True
        self.outage = Outage(Clock())
        self.consumer = consumer
        self._reader: Connection | None = None
        self._inboxes = [self.keys.inbox(shard) for shard in range(settings.shards)]
        self._bells: Bells | None = None
        if not isinstance(self.pipeline, Pipeline):
            prefix = self.keys.inbox(0).partition("{")[0]
            self._bells = Bells(self.pipeline, self._inboxes, prefix, settings.answer_timeout_s)
        self._context_ttl_ms = int(settings.context_ttl_s * 1000)
        # LT: a ring that comes twice does not lengthen it
        self._expire_head, self._expire_tail = pack_around(("PEXPIRE",), (int(settings.final_ttl_s * 1000), "LT"))

    async def close(self) -> None:
        """Closes all connections; twice is safe."""
        self.close_reader()
        await super().close()

    def close_reader(self) -> None:
        """Breaks off a read under way; what it would have brought stays pending."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        if self._bells is not None:
            self._bells.close()

    async def create_groups(self) -> None:
        """Makes the consumer group of each inbox, from its oldest ring on; what is there already stays."""
        commands = [("XGROUP", "CREATE", inbox, GROUP, "0", "MKSTREAM") for inbox in self._inboxes]
        replies = await self.pipeline.batch(commands, "create groups")
        checked([reply for reply in replies if not _is_kind(reply, "BUSYGROUP")], "create groups")

    async def read_rings(self, count: int, block_s: float) -> list[Ring]:
        """Waits for new rings, `count` an inbox at most, `block_s` seconds at most; 0 takes those that are there.

        Raises BrokerRefused where a group is missing: FLUSHALL, or an inbox that was deleted.
        """
        if self._bells is not None:
            return await self._read_rung(self._bells, count, block_s)
        block: tuple[Argument, ...] = ("BLOCK", int(block_s * 1000)) if block_s else ()
        return await self._read(("COUNT", count, *block), ">", block_s)

    async def read_own_pending(self, count: int) -> list[Ring]:
        """Rings that this router was given and did not acknowledge, oldest first, `count` an inbox at most."""
        if self._bells is not None:
            return [ring for rings in (await self._read_each(self._inboxes, count, "0")).values() for ring in rings]
        return await self._read(("COUNT", count), "0", 0)

    async def take_over(self, idle_s: float, count: int) -> list[Ring]:
        """Rings that some router was given and did not acknowledge for `idle_s`; forgets routers that are long gone."""
        idle_ms = int(idle_s * 1000)
        commands = [("XAUTOCLAIM", inbox, GROUP, self.consumer, idle_ms, "0", "COUNT", count) for inbox in self._inboxes]
        replies = await self.pipeline.batch(commands, "take over")
        for inbox in self._inboxes:
            await self.pipeline.run(FORGET, [inbox], [GROUP, _FORGET_AFTER_MS, ""])
        found = enumerate(checked(replies, "take over"))
        return [ring for shard, (_, entries, *_) in found for ring in rings_of(shard, entries)]

    async def acknowledge(self, rings: Iterable[Ring]) -> None:
        """Takes rings out of the group's books and out of the inboxes, both or none."""
        ids: dict[int, list[str]] = defaultdict(list)
        for ring in rings:
            ids[ring.shard].append(ring.id)
        commands: list[tuple[Argument, ...]] = []
        for shard, entries in ids.items():
            inbox = self._inboxes[shard]
            commands += [("MULTI",), ("XACK", inbox, GROUP, *entries), ("XDEL", inbox, *entries), ("EXEC",)]
        checked(await self.pipeline.batch(commands, "acknowledge"), "acknowledge")

    async def fetch(self, task_ids: Sequence[str]) -> list[Ends]:
        """The first and the last entry of each task's stream, unchecked."""
        commands = [command for task_id in task_ids for command in self._ends_commands(task_id)]
        replies = await self.pipeline.batch(commands, "fetch")
        return [_ends(*ends) for ends in zip(task_ids, replies[::2], replies[1::2], strict=True)]

    async def examine(self, tasks: Sequence[tuple[str, str]]) -> list[Sighting]:
        """What stands on the broker of each (task id, agent)."""
        commands: list[Sequence[Argument]] = []
        for task_id, agent in tasks:
            member = arq_keys.job_id(agent, task_id)
            commands += [
                ("ZSCORE", arq_keys.queue(agent), member),
                ("EXISTS", arq_keys.job(member)),
                ("EXISTS", arq_keys.in_progress(member)),
                ("PTTL", self.keys.events(task_id)),
                ("GET", self.keys.cancel(task_id)),
                *self._ends_commands(task_id),
            ]
        replies = await self.pipeline.batch(commands, "examine")
        each = len(commands) // max(len(tasks), 1)
        seen = [_sighting(task_id, replies[place * each : (place + 1) * each]) for place, (task_id, _) in enumerate(tasks)]
        return await self._with_openings(seen)

    async def _with_openings(self, seen: list[Sighting]) -> list[Sighting]:
        """Adds what the next opener would go by, where an attempt was left."""
        left = {place: sighting.ends for place, sighting in enumerate(seen) if sighting.is_left}
        openings = [EventId(ends.top_attempt, 1) for ends in left.values()]
        keys = [self.keys.events(ends.task_id) for ends in left.values()]
        commands = [("XRANGE", key, str(opening), str(opening)) for key, opening in zip(keys, openings, strict=True)]
        found = checked(await self.pipeline.batch(commands, "read openings"), "read openings")
        for place, reply in zip(left, found, strict=True):
            seen[place] = replace(seen[place], opening=_entry(reply))
        return seen

    async def queued_jobs(self, agent: str, task_ids: Sequence[str]) -> dict[str, bytes | None]:
        """Which of these tasks are still on their agent's queue, each with its job where that is kept."""
        members = {task_id: arq_keys.job_id(agent, task_id) for task_id in task_ids}
        listed = list(members.values())
        portions = (listed[start : start + _MEMBERS_AT_ONCE] for start in range(0, len(listed), _MEMBERS_AT_ONCE))
        replies = await self.pipeline.batch([("ZMSCORE", arq_keys.queue(agent), *some) for some in portions], "look for jobs")
        scores = (score for reply in checked(replies, "look for jobs") for score in reply)
        left = [task_id for task_id, score in zip(members, scores, strict=True) if score is not None]
        payloads = await self.pipeline.batch([("GET", arq_keys.job(members[task_id])) for task_id in left], "read jobs")
        return dict(zip(left, checked(payloads, "read jobs"), strict=True))

    async def queue_page(self, agent: str, cursor: int, count: int) -> tuple[int, list[str]]:
        """Task ids on an agent's queue, about `count` of them, and the cursor of the next page (0: that was the last)."""
        following, found = await self.pipeline.call("ZSCAN", arq_keys.queue(agent), cursor, "COUNT", count)
        members = (member.decode(errors="replace") for member in found[::2])
        task_ids = (arq_keys.task_of_job(agent, member) for member in members)
        return int(following), [task_id for task_id in task_ids if task_id is not None]

    async def write_contexts(self, contexts: Sequence[RecentMessages]) -> None:
        """Writes the recent messages of conversations, each unless a newer version stands there; logs what is refused."""
        calls = [self._context_call(context) for context in contexts]
        replies = await self.pipeline.batch([CONTEXT.evalsha(*call) for call in calls], "write contexts")
        for context, call, reply in zip(contexts, calls, replies, strict=True):
            if _is_kind(reply, "NOSCRIPT"):
                await self.pipeline.run(CONTEXT, *call)
            elif isinstance(reply, ReplyError):
                if reply.kind in _TRY_AGAIN:
                    raise BrokerUnavailable(f"write contexts: {reply}")
                log.error("the recent messages of context %s are not written: %s", context.context_id, reply)

    def _context_call(self, context: RecentMessages) -> tuple[list[str], list[Argument]]:
        keys = [self.keys.context_messages(context.context_id), self.keys.context_version(context.context_id)]
        return keys, [context.version, self._context_ttl_ms, *context.messages]

    async def expire_ended(self, task_ids: Iterable[str]) -> None:
        """Shortens the life of ended tasks' keys to `final_ttl_s` from the first call on."""
        commands = [
            self._expire_head + blob(key) + self._expire_tail
            for task_id in task_ids
            for key in (self.keys.events(task_id), self.keys.cancel(task_id))
        ]
        checked(await self.pipeline.batch(commands, "expire"), "expire")

    async def end_lost(self, task_id: str, request: TaskRequest, final: FinalEvent, *, attempt: int, submitted_at: int) -> bool:
        """Makes the stream of a task again, with its final in `attempt`; False where there is a stream (rule P14).

        `submitted_at` is when the task was submitted first (unix ms).
        """
        keys = [self.keys.events(task_id), self.keys.inbox_of(task_id)]
        asked = flat(request.to_fields())
        arguments: list[Argument] = [
            task_id, ROUTER, self._stream_ttl_ms, attempt, submitted_at, len(asked), *asked, *arguments_of(final)
        ]  # fmt: skip
        return bool(await self.pipeline.run(LOST, keys, arguments))

    async def leave_groups(self) -> None:
        """Takes this router's name out of the groups where nothing is pending for it."""
        for inbox in self._inboxes:
            await self.pipeline.run(FORGET, [inbox], [GROUP, _FORGET_AFTER_MS, self.consumer])

    def _ends_commands(self, task_id: str) -> tuple[bytes, bytes]:
        key = blob(self.keys.events(task_id))
        return _FIRST_HEAD + key + _FIRST_TAIL, _TOP_HEAD + key + _TOP_TAIL

    async def _read_rung(self, bells: Bells, count: int, block_s: float) -> list[Ring]:
        rung = await bells.wait(block_s)
        before = self.pipeline.connections_made
        found = await self._read_each(rung, count, ">")
        bells.ring(inbox for inbox, rings in found.items() if len(rings) >= count)
        rings = [ring for rings in found.values() for ring in rings]
        if self.pipeline.connections_made == before:
            return rings
        return [*await self.read_own_pending(count), *rings]  # an answer may have been lost, and asked for again

    async def _read_each(self, inboxes: Sequence[str], count: int, start: str) -> dict[str, list[Ring]]:
        group = ("XREADGROUP", "GROUP", GROUP, self.consumer, "COUNT", count, "STREAMS")
        replies = await self.pipeline.batch([(*group, inbox, start) for inbox in inboxes], "read rings")
        shards = {inbox: shard for shard, inbox in enumerate(self._inboxes)}
        found = zip(inboxes, checked(replies, "read rings"), strict=True)
        return {inbox: [ring for _, some in reply or () for ring in rings_of(shards[inbox], some)] for inbox, reply in found}

    async def _read(self, options: Sequence[Argument], start: str, block_s: float) -> list[Ring]:
        connection = await self._reading_connection()
        command = ("XREADGROUP", "GROUP", GROUP, self.consumer, *options, "STREAMS", *self._inboxes)
        timeout_s = block_s + self.settings.answer_timeout_s
        try:
            reply = await connection.call(*command, *([start] * len(self._inboxes)), timeout_s=timeout_s)
        except ReplyError as error:
            if error.kind in RETRY_KINDS:
                self.close_reader()  # connect again: another server may be the primary now
                raise BrokerUnavailable(f"read rings: {error}") from None
            raise BrokerRefused(f"read rings: {error}") from None
        shards = {inbox.encode(): shard for shard, inbox in enumerate(self._inboxes)}
        return [ring for inbox, entries in reply or () for ring in rings_of(shards[inbox], entries)]

    async def _reading_connection(self) -> Connection:
        if self._reader is None or not self._reader.is_open:
            self._reader = await connect(self.settings)
        return self._reader


def _ends(task_id: str, first: Reply, top: Reply) -> Ends:
    if type(first) is list and type(top) is list:
        return Ends(task_id, _entry(first), _entry(top))
    for reply in (first, top):
        if isinstance(reply, ReplyError) and reply.kind != "WRONGTYPE":
            checked([reply], "fetch")
    return Ends(task_id, None, None, problem=str(first))


def _entry(reply: Reply) -> RawEntry | None:
    if not reply:
        return None
    raw_id, flat = reply[0]
    return RawEntry(raw_id.decode(), flat)


def _sighting(task_id: str, replies: Sequence[Reply]) -> Sighting:
    *job, first, top = replies
    score, has_job, owned, ttl_ms, reason = checked(job, "examine")
    return Sighting(
        ends=_ends(task_id, first, top),
        queued=score is not None,
        has_job=bool(has_job),
        owned=bool(owned),
        stream_ttl_ms=ttl_ms if ttl_ms >= 0 else None,
        cancel_reason=None if reason is None else reason.decode(errors="replace"),
    )


def _is_kind(reply: Reply, kind: str) -> bool:
    return isinstance(reply, ReplyError) and reply.kind == kind
