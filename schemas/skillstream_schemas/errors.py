"""The error tree: one base, one class a cause, one stable code each.

The first line of a class's docstring says what happened; `hint` says what to do about it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Self

from .failure_code import FailureCode as FailureCode


class SkillstreamError(Exception):
    """Something in skillstream went wrong.

    `code` is stable across releases, `hint` says what to do; both are in the text of the error.
    """

    code: ClassVar[str] = "skillstream_error"
    hint: str = ""

    def __init__(self, message: str = "", *, hint: str | None = None) -> None:
        if hint is not None:  # what helps in this case, instead of what helps in most
            self.hint = hint
        first_line = (type(self).__doc__ or type(self).__name__).strip().splitlines()[0]
        self.message = message or first_line
        super().__init__(self.message)

    def __str__(self) -> str:
        hint = f" ({self.hint})" if self.hint else ""
        return f"{self.code}: {self.message}{hint}"


class InvalidRequest(SkillstreamError):
    """A task request breaks the contract."""

    code = "invalid_request"
    hint = "the text names the field"


class InvalidName(InvalidRequest):
    """A task id, agent name or context id has characters or a length that keys do not allow."""

    code = "invalid_name"
    hint = "1 to 128 characters of A-Z a-z 0-9 . _ -, not dots alone"


class MessageTooLarge(InvalidRequest):
    """The message of a task is over its limit in UTF-8 bytes."""

    code = "message_too_large"
    hint = "put large input where the skill can fetch it and send a reference"


class InvalidSettings(SkillstreamError):
    """A setting has a value that cannot be used."""

    code = "invalid_settings"
    hint = "the text names the setting; SKILLSTREAM_ and its name in capitals is its variable"


class MissingExtra(SkillstreamError, ImportError):
    """A part of skillstream was imported or called whose optional packages are not installed."""

    code = "missing_extra"
    hint = "install the extra that the text names"

    def __init__(self, message: str = "", *, extra: str = "", hint: str | None = None) -> None:
        super().__init__(message, hint=f"pip install 'skillstream[{extra}]'" if extra else hint)

    @classmethod
    def of(cls, error: ModuleNotFoundError, who_needs: str, extra: str) -> Self:
        """The error for a package that is missing; raises `error` itself where it is a module of ours: that is a fault."""
        if (error.name or "").startswith("skillstream"):
            raise error
        return cls(f"{who_needs} {error.name}", extra=extra)


class UnknownAgent(SkillstreamError):
    """No worker of this agent has ever announced itself on this broker."""

    code = "unknown_agent"
    hint = "start a worker for it once, or check the spelling"


class UnknownSkill(SkillstreamError):
    """The agent has no skill of this name."""

    code = "unknown_skill"
    hint = "the text lists the skills that its workers announced"


class UnknownTask(SkillstreamError):
    """There is no stream of this task on the broker."""

    code = "unknown_task"
    hint = "it was never submitted, its retention ended, or a stock arq client queued it and no worker opened it yet"


class TaskIdTaken(SkillstreamError):
    """Another request was submitted under this task id before."""

    code = "task_id_taken"
    hint = "use another id; the same id is only for repeating the same request"


class NotAllSubmitted(SkillstreamError):
    """Of many tasks submitted together the broker did not take all.

    `task_ids` are the ids of all, `errors` maps the places of those that it did not take to what was wrong.
    """

    code = "not_all_submitted"
    hint = "the others run; submit those under their ids again: what the broker has is not run twice"

    def __init__(self, task_ids: Sequence[str], errors: Mapping[int, SkillstreamError]) -> None:
        self.task_ids, self.errors = tuple(task_ids), dict(errors)
        place, first = next(iter(self.errors.items()))
        count = f"{len(self.errors)} of {len(self.task_ids)} tasks"
        super().__init__(f"{count}, the first of them the one at {place}: {first.code}: {first.message}")


class InvalidTransition(SkillstreamError):
    """A task state may not follow the state before it."""

    code = "invalid_transition"
    hint = "nothing follows a final state"


class MalformedEntry(SkillstreamError):
    """A stream entry is not an event of this wire version."""

    code = "malformed_entry"
    hint = "somebody else writes to this key, or writes another wire version"


class MalformedJob(SkillstreamError):
    """A job on the queue cannot be read."""

    code = "malformed_job"
    hint = "see the section on arq in docs/wire-format.md"


class EventTooLarge(SkillstreamError):
    """A status or structured chunk is over the limit of one stream entry."""

    code = "event_too_large"
    hint = "send less at once, or text: text is cut"


class OutputTooLarge(SkillstreamError):
    """A task produced more output than its limit."""

    code = "output_too_large"
    hint = "put large output where the reader can fetch it and say a reference"


class StreamGap(SkillstreamError):
    """Entries of a stream are missing between two ids.

    `after` is the last id before the hole, `before` the first id behind it.
    """

    code = "stream_gap"
    hint = "the broker lost entries, or somebody deleted them; the final has the whole text"

    def __init__(self, task_id: str, after: str, before: str) -> None:
        self.task_id, self.after, self.before = task_id, after, before
        super().__init__(f"entries of task {task_id} are missing between {after} and {before}")


class StreamLost(SkillstreamError):
    """The stream of a task vanished while it was read."""

    code = "stream_lost"
    hint = "its retention ended or the broker lost data; the router's database keeps the outcome"


class TextReset(SkillstreamError):
    """A newer attempt started the text again: keep the first `keep` characters and read on from `after`."""

    code = "text_reset"
    hint = "cut the text to `keep` characters and call text(after=error.after)"

    def __init__(self, task_id: str, attempt: int, keep: int, after: str) -> None:
        self.task_id, self.attempt, self.keep, self.after = task_id, attempt, keep, after
        super().__init__(f"attempt {attempt} of task {task_id} keeps {keep} characters of the text so far")


class ResultTimeout(SkillstreamError):
    """The task had no final event within the time that the caller wanted to wait."""

    code = "result_timeout"
    hint = "the task goes on; ask again or cancel it"


class BrokerUnavailable(SkillstreamError):
    """Redis could not be reached, or did not answer in time."""

    code = "broker_unavailable"
    hint = "check the URL and that the server runs"


class BrokerAccessDenied(BrokerUnavailable):
    """Redis runs and does not let this user in."""

    code = "broker_access_denied"
    hint = "check user and password in the URL, and what the user may do"


class BrokerRefused(SkillstreamError):
    """Redis answered a command with an error."""

    code = "broker_refused"
    hint = "the server's own words say why: rights, memory, a key of another type"


class NotReplicated(SkillstreamError):
    """No replica confirmed a durable submission in time; the task is queued on the primary all the same."""

    code = "not_replicated"
    hint = "the task runs; see that the replicas are connected"


class ShardsMismatch(SkillstreamError):
    """The broker was set up with another number of shards than this process has in its settings."""

    code = "shards_mismatch"
    hint = "set SKILLSTREAM_SHARDS to the broker's number"


class DatabaseUnavailable(SkillstreamError):
    """The router's database could not be opened, read or written just now."""

    code = "database_unavailable"
    hint = "check the database URL, its folder, the free space and whether another process holds it"


class DatabaseRefused(SkillstreamError):
    """The router's database does not take these values, however often they are sent."""

    code = "database_refused"
    hint = "the log names the task, which stays unrecorded"


class InvalidTarget(SkillstreamError):
    """What was named as MODULE:AGENT cannot be imported or is no agent."""

    code = "invalid_target"
    hint = "MODULE:AGENT names an Agent in a module of the current directory or an installed package"


class Unpublishable(SkillstreamError):
    """An attempt can add nothing more to its stream."""

    code = "unpublishable"
    hint = "another attempt has the stream, or the broker lost it; this attempt ends by itself"
