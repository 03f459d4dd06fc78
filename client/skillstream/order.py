"""What a service may ask for when it submits a task."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from skillstream_schemas.card import SkillCard
from skillstream_schemas.errors import InvalidRequest
from skillstream_schemas.limits import MAX_DELAY_S, Limits
from skillstream_schemas.request import HistoryMessage, TaskRequest


class Order(NamedTuple):
    """One task for `Client.submit_many`; the fields are the arguments of `Client.submit`.

    `delay` is seconds until the task may start; `deadline` the moment, or the time from now, at which it ends as failed.
    """

    agent: str
    skill: str
    message: str
    context_id: str | None = None
    payer: str | None = None
    task_id: str | None = None
    deadline: datetime | timedelta | None = None
    delay: float | timedelta | None = None
    metadata: Mapping[str, Any] | None = None
    data: Any = None
    history: Sequence[HistoryMessage] | None = None
    follows: str | None = None
    sender_id: str | None = None
    parent: str | None = None
    traceparent: str | None = None

    def delay_ms(self) -> int:
        """The delay; raises InvalidRequest for one that is not between 0 and a year."""
        if self.delay is None:
            return 0
        seconds = self.delay.total_seconds() if isinstance(self.delay, timedelta) else self.delay
        try:
            is_within = 0 <= seconds <= MAX_DELAY_S
        except TypeError:
            raise InvalidRequest(f"delay is {type(seconds).__name__}, not a number of seconds or a timedelta") from None
        if not is_within:
            raise InvalidRequest(f"a delay of {seconds} s is not between 0 and a year")
        return int(seconds * 1000)

    def request(self, card: SkillCard, limits: Limits) -> TaskRequest:
        """The request, with what the skill's card adds; raises InvalidRequest (MessageTooLarge, InvalidName)."""
        wanted = {
            "agent": self.agent, "skill": self.skill, "message": self.message,
            "max_attempts": card.max_attempts, "price_micros": card.price_micros, "on_retry": card.on_retry,
            "context_id": self.context_id, "payer": self.payer, "deadline": _unix_ms(self.deadline),
            "metadata": _plain(self.metadata), "data": self.data,
            "history": None if self.history is None else tuple(self.history),
            "follows": self.follows, "sender_id": self.sender_id, "parent": self.parent, "traceparent": self.traceparent,
        }  # fmt: skip
        return TaskRequest.build(wanted, limits)


def _plain(metadata: Any) -> Any:
    """Metadata as a dict; what is no mapping is left for the models to refuse."""
    return (dict(metadata) if isinstance(metadata, Mapping) else metadata) if metadata else None


def _unix_ms(deadline: datetime | timedelta | None) -> int | None:
    if deadline is None:
        return None
    if isinstance(deadline, timedelta):
        return int((time.time() + deadline.total_seconds()) * 1000)
    if not isinstance(deadline, datetime):
        raise InvalidRequest(f"deadline is {type(deadline).__name__}, not a datetime or a timedelta")
    if deadline.tzinfo is None:
        raise InvalidRequest("deadline has no time zone")
    return int(deadline.timestamp() * 1000)
