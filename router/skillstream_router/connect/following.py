"""Submitting and following to the end, whatever happens on the way: who owes somebody an end may not stop before it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from skillstream import Client
from skillstream.clock import Clock
from skillstream.task import Task
from skillstream_schemas.errors import (
    BrokerRefused,
    BrokerUnavailable,
    FailureCode,
    MalformedEntry,
    SkillstreamError,
    StreamGap,
    StreamLost,
    TaskIdTaken,
    UnknownTask,
)
from skillstream_schemas.event import FinalEvent, FollowedEvent, ResetEvent
from skillstream_schemas.ids import START, EventId
from skillstream_schemas.state import TaskState

from .backoff import Backoff
from .persistence import FIRST_PAUSE_S, LONGEST_PAUSE_S, persist

log = logging.getLogger(__name__)


async def submit_once(client: Client, agent: str, skill: str, message: str, *, task_id: str, **options: Any) -> Task:
    """Submits as `Client.submit`, waiting for a broker that stays away, under an id that is made from what was asked elsewhere.

    Where that id is taken, an earlier process submitted it, with other options than this one has: that task stands.
    """
    try:
        return await persist(f"task {task_id}", lambda: client.submit(agent, skill, message, task_id=task_id, **options))
    except TaskIdTaken as error:
        log.warning("the first submission stands: %s", error)
        return client.task(task_id)


async def events_to_the_end(task: Task, after: EventId, clock: Clock) -> AsyncGenerator[FollowedEvent, None]:
    """Yields the events behind `after`, as `Task.events`, and always a final at last.

    A broker that stays away is waited for. Where entries are missing or unreadable only the final is given; where the stream
    is gone, or its final cannot be read, a final made here says so: failed, `stream_lost` or `malformed_entry`.
    """
    cursor = after
    backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
    whole = True
    while True:
        try:
            if whole:
                async with aclosing(task.events(cursor)) as events:
                    async for event in events:
                        cursor = START if isinstance(event, ResetEvent) and event.attempt == 0 else getattr(event, "id", cursor)
                        backoff.reset()
                        yield event
                        if isinstance(event, FinalEvent):
                            return
            yield await task.result()
            return
        except (BrokerUnavailable, BrokerRefused) as error:
            log.warning("task %s cannot be followed just now: %s", task.id, error)
            await asyncio.sleep(backoff.next_s())
        except (StreamLost, UnknownTask) as error:
            yield ended_here(clock, FailureCode.STREAM_LOST, error.message)
            return
        except (StreamGap, MalformedEntry) as error:
            log.warning("task %s: only its final is given: %s", task.id, error)
            if not whole:
                yield ended_here(clock, error.code, error.message)
                return
            whole = False


def ended_here(clock: Clock, code: str, reason: str) -> FinalEvent:
    """A final for a task that has none, or none that can be read."""
    return FinalEvent(
        id=START, at=clock.now_ms(), state=TaskState.FAILED, text="", metadata={}, error=code, reason=reason, chunks=0
    )


def refused(clock: Clock, error: SkillstreamError) -> FinalEvent:
    """The final of a task that was never queued, since its request cannot be."""
    return ended_here(clock, error.code, error.message)
