"""From a task's stream to its row: pure, with no I/O. Rings are folded to one notice a task, entries to one row a task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from skillstream_schemas.errors import MalformedEntry, SkillstreamError
from skillstream_schemas.event import FinalEvent, event_from_fields, request_from_fields
from skillstream_schemas.ids import SUBMISSION, EventId, is_name
from skillstream_schemas.limits import MAX_LABEL_CHARS
from skillstream_schemas.request import TaskRequest, compact_json
from skillstream_schemas.state import TaskState

from .plain import Asked, Outcome, plain_final, plain_request
from .store.record import UNKNOWN, TaskRecord

_HEAD = ("type", "state", "v", "at")
_MAX_MS = 10**15
_MAX_RING_MS = 10**14

_NO_OUTCOME = Outcome()


class Ring(NamedTuple):
    """An entry of an inbox: "look at this task"; `id` is the entry's.

    `problem` says why it cannot be followed; it is acknowledged all the same. `agent` comes with kind `gone`.
    """

    shard: int
    id: str
    task_id: str = ""
    kind: str = ""
    agent: str | None = None
    problem: str | None = None

    @property
    def at(self) -> int:
        """When it was added (unix ms); 0 where a ringer gave it an id of his own, of a time that no clock shows."""
        at = int(self.id.partition("-")[0])
        return at if at <= _MAX_RING_MS else 0


class RawEntry(NamedTuple):
    """An entry as it stands on the broker, its fields as name, value, …; nothing of it was checked."""

    id: str
    flat: list[bytes]

    @property
    def fields(self) -> Mapping[bytes, bytes]:
        """Values by name."""
        return dict(zip(self.flat[::2], self.flat[1::2], strict=True))

    def text(self, name: str) -> str:
        """A field as far as it can be read, "" if it is missing."""
        return self.fields.get(name.encode(), b"").decode(errors="replace")

    def number(self, name: str, default: int) -> int:
        """A field as a number, the default if it is missing or none."""
        digits = self.fields.get(name.encode(), b"")
        return _number(digits) if digits.isdigit() else default

    def strict_fields(self) -> dict[str, str]:
        """All fields; raises MalformedEntry where one is not UTF-8."""
        try:
            return {name.decode(): value.decode() for name, value in self.fields.items()}
        except UnicodeDecodeError as error:
            raise MalformedEntry(f"entry {self.id}: a field is not UTF-8: {error.reason} at byte {error.start}") from None

    @property
    def is_final(self) -> bool:
        """True where the scripts take it for the end of the task."""
        return self.fields.get(b"type") == b"final"


class Ends(NamedTuple):
    """The first and the last entry of a task's stream; `problem` where the broker refused to read it."""

    task_id: str
    first: RawEntry | None
    top: RawEntry | None
    problem: str | None = None

    @property
    def top_attempt(self) -> int:
        """The attempt of the last entry, 0 where there is none."""
        return 0 if self.top is None else _attempt(self.top)

    @property
    def size_bytes(self) -> int:
        """What both entries hold: the length of them joined, which is found sooner than the sum of lengths."""
        return len(b"".join(self.first.flat + self.top.flat)) if self.first and self.top else 0


class Notice(NamedTuple):
    """What the rings of one task say beside "look": when it was opened first and its cancellation asked for (unix ms)."""

    task_id: str
    opened_at: int | None = None
    cancel_requested_at: int | None = None
    gone_agent: str | None = None


class Projected(NamedTuple):
    """What the stream says about a task: its row, and the two turns of its history once it is final.

    `problem` names an entry that could not be read; such a task is never charged.
    """

    record: TaskRecord
    message: str | None = None
    reply: str | None = None
    problem: str | None = None


def fold(rings: Iterable[Ring]) -> dict[str, Notice]:
    """One notice a task, in the order of task ids; rings with a problem are left out."""
    notices: dict[str, Notice] = {}
    for ring in rings:
        if ring.problem is not None:
            continue
        task_id, kind = ring.task_id, ring.kind
        _, opened_at, cancel_requested_at, gone_agent = notices.get(task_id) or Notice(task_id)
        if kind == "opened":
            opened_at = ring.at if opened_at is None else min(opened_at, ring.at)
        elif kind == "cancel":
            cancel_requested_at = ring.at if cancel_requested_at is None else min(cancel_requested_at, ring.at)
        elif kind == "gone":
            gone_agent = ring.agent
        elif task_id in notices:
            continue
        notices[task_id] = Notice(task_id, opened_at, cancel_requested_at, gone_agent)
    return dict(sorted(notices.items()))


def project(notice: Notice, first: RawEntry, top: RawEntry) -> Projected:
    """What the ends of a stream say; an entry that cannot be read leaves what can be said without it."""
    attempt, request = _attempt(top), None
    asked, message, unreadable = _request_of(first)
    state, outcome, text, problem = _state_of(top, attempt)
    if not state.is_final and unreadable is None:
        request = _request_json(first)
    _, opened_at, cancel_requested_at, _ = notice
    record = TaskRecord(notice.task_id, state, *asked, *outcome, attempt, top.id, opened_at, cancel_requested_at, request)
    if not state.is_final:
        return Projected(record, problem=unreadable)
    return Projected(record, message, text, unreadable or problem)


def lost(notice: Notice, now_ms: int) -> TaskRecord:
    """The row of a task of which nothing is left but the ring of a worker that found no stream."""
    return TaskRecord(
        id=notice.task_id, state=TaskState.SUBMITTED, agent=notice.gone_agent or UNKNOWN, skill=UNKNOWN, submitted_at=now_ms
    )


def read_request(first: RawEntry) -> TaskRequest:
    """The request in a stream's first entry; raises MalformedEntry or InvalidName."""
    if first.id != str(SUBMISSION):
        raise MalformedEntry(f"entry {first.id}: the first entry is not a submission")
    try:
        return request_from_fields(first.strict_fields())
    except MalformedEntry as error:
        raise MalformedEntry(f"entry {first.id}: {error.message}") from None


def read_final(top: RawEntry) -> tuple[TaskState, Outcome, str, str | None]:
    """What a final says, its text, and why it cannot be read: then the task failed."""
    try:
        fields = top.strict_fields()
        final = event_from_fields(EventId.parse(top.id), fields)
        if not isinstance(final, FinalEvent):
            raise MalformedEntry(f"entry {top.id}: it is no final")
    except SkillstreamError as error:
        outcome = Outcome(top.number("at", 0), error=MalformedEntry.code, reason=error.message)
        return TaskState.FAILED, outcome, top.text("text"), error.message
    nested = {name: fields.get(name) for name in ("data", "metadata", "usage")}
    at = final.at if final.at < _MAX_MS else 0
    return final.state, Outcome(at, error=final.error, reason=final.reason, **nested), final.text, None


def asked_of(request: TaskRequest, submitted_at: int) -> Asked:
    """What the row of a task takes from a request."""
    return Asked(
        request.agent,
        request.skill,
        submitted_at,
        request.price_micros,
        request.context_id,
        request.payer,
        request.deadline,
    )


def _request_of(first: RawEntry) -> tuple[Asked, str | None, str | None]:
    """What was asked for, its message, and why it cannot be read: then what can be said of it all the same."""
    plain = plain_request(first.id, first.flat)
    if plain is not None:
        return *plain, None
    submitted_at = first.number("at", 0)
    try:
        request = read_request(first)
    except SkillstreamError as error:
        agent, skill = first.text("agent"), first.text("skill")[:MAX_LABEL_CHARS]
        return Asked(agent if is_name(agent) else UNKNOWN, skill or UNKNOWN, submitted_at), None, error.message
    return asked_of(request, submitted_at), request.message, None


def _state_of(top: RawEntry, attempt: int) -> tuple[TaskState, Outcome, str, str | None]:
    if b"final" in top.flat:
        plain = plain_final(top.id, top.flat)
        if plain is not None:
            return *plain, None
        if top.is_final:
            return read_final(top)
    return TaskState.WORKING if attempt else TaskState.SUBMITTED, _NO_OUTCOME, "", None


def _request_json(first: RawEntry) -> str:
    return compact_json({name: value for name, value in first.strict_fields().items() if name not in _HEAD})


def _attempt(entry: RawEntry) -> int:
    return _number(entry.id.partition("-")[0].encode())


def _number(digits: bytes) -> int:
    return int(digits) if digits.isdigit() and len(digits) <= 15 else 0
