"""From a task's stream to its row: pure, with no I/O. Rings are folded to one notice a task, entries to one row a task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from skillstream_schemas.errors import MalformedEntry, SkillstreamError
from skillstream_schemas.event import FinalEvent, event_from_fields, request_from_fields
from skillstream_schemas.ids import SUBMISSION, EventId, is_name
from skillstream_schemas.request import TaskRequest, compact_json
from skillstream_schemas.state import TaskState

from .store.record import UNKNOWN, TaskRecord

_LABEL = 256
_HEAD = ("type", "state", "v", "at")
_MAX_MS = 10**15


class Ring(NamedTuple):
    """An entry of an inbox: "look at this task". `id` and `at` (unix ms) are the entry's.

    `problem` says why it cannot be followed; it is acknowledged all the same. `agent` comes with kind `gone`.
    """

    shard: int
    id: str
    at: int
    task_id: str = ""
    kind: str = ""
    agent: str | None = None
    problem: str | None = None


class RawEntry(NamedTuple):
    """An entry as it stands on the broker; nothing of it was checked."""

    id: str
    fields: Mapping[bytes, bytes]

    def text(self, name: str) -> str:
        """A field as far as it can be read, "" if it is missing."""
        return self.fields.get(name.encode(), b"").decode(errors="replace")

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
    def size_bytes(self) -> int:
        """What both entries hold."""
        return sum(sum(map(len, entry.fields.values())) for entry in (self.first, self.top) if entry is not None)


class Notice(NamedTuple):
    """What the rings of one task say beside "look": when it was opened first and its cancellation asked for (unix ms)."""

    task_id: str
    opened_at: int | None = None
    cancel_requested_at: int | None = None
    gone_agent: str | None = None


@dataclass(frozen=True, slots=True)
class Projected:
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
        known = notices.get(ring.task_id)
        if known is None:
            known = notices[ring.task_id] = Notice(ring.task_id)
        match ring.kind:
            case "opened" if known.opened_at is None or ring.at < known.opened_at:
                notices[ring.task_id] = known._replace(opened_at=ring.at)
            case "cancel" if known.cancel_requested_at is None or ring.at < known.cancel_requested_at:
                notices[ring.task_id] = known._replace(cancel_requested_at=ring.at)
            case "gone":
                notices[ring.task_id] = known._replace(gone_agent=ring.agent)
            case _:
                pass
    return dict(sorted(notices.items()))


def project(notice: Notice, first: RawEntry, top: RawEntry) -> Projected:
    """What the ends of a stream say; an entry that cannot be read leaves what can be said without it."""
    problem: str | None = None
    request: TaskRequest | None = None
    try:
        request = read_request(first)
    except SkillstreamError as error:
        problem = error.message
    identity = _identity(first, request)
    times: dict[str, Any] = {"opened_at": notice.opened_at, "cancel_requested_at": notice.cancel_requested_at}
    if not top.is_final:
        attempt = _attempt(top)
        state = TaskState.SUBMITTED if attempt == 0 else TaskState.WORKING
        kept = None if request is None else _request_json(first)
        record = TaskRecord(
            id=notice.task_id, state=state, attempt=attempt, last_event_id=top.id, request=kept, **identity, **times
        )
        return Projected(record, problem=problem)
    ending, reply, unreadable = _ending(top)
    record = TaskRecord(id=notice.task_id, attempt=_attempt(top), last_event_id=top.id, **identity, **times, **ending)
    return Projected(record, None if request is None else request.message, reply, problem or unreadable)


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


def _identity(first: RawEntry, request: TaskRequest | None) -> dict[str, Any]:
    submitted_at = _number(first.text("at"))
    if request is None:
        agent = first.text("agent")
        return {
            "agent": agent if is_name(agent) else UNKNOWN,
            "skill": first.text("skill")[:_LABEL] or UNKNOWN,
            "submitted_at": submitted_at,
        }
    return {
        "agent": request.agent, "skill": request.skill, "context_id": request.context_id, "payer": request.payer,
        "price_micros": request.price_micros, "deadline": request.deadline, "submitted_at": submitted_at,
    }  # fmt: skip


def _ending(top: RawEntry) -> tuple[dict[str, Any], str, str | None]:
    """Columns of the final, its text, and what is wrong with it."""
    try:
        fields = top.strict_fields()
        final = event_from_fields(EventId.parse(top.id), fields)
        if not isinstance(final, FinalEvent):
            raise MalformedEntry(f"entry {top.id}: it is no final")
    except SkillstreamError as error:
        columns: dict[str, Any] = {"state": TaskState.FAILED, "error": MalformedEntry.code, "reason": error.message}
        return columns | {"finished_at": _number(top.text("at"))}, top.text("text"), error.message
    nested = {name: fields.get(name) for name in ("data", "metadata", "usage")}
    finished_at = final.at if final.at < _MAX_MS else 0
    columns = {"state": final.state, "error": final.error, "reason": final.reason, "finished_at": finished_at}
    return columns | nested, final.text, None


def _request_json(first: RawEntry) -> str:
    return compact_json({name: value for name, value in first.strict_fields().items() if name not in _HEAD})


def _attempt(entry: RawEntry) -> int:
    return _number(entry.id.split("-", 1)[0])


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 15 else 0
