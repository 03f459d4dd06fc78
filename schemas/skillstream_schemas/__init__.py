"""The contract of skillstream: events, requests, states, keys, jobs, cards, settings, errors. No I/O."""

from .card import AgentCard, SkillCard
from .errors import FailureCode, SkillstreamError
from .event import (
    ChunkEvent,
    FinalEvent,
    FollowedEvent,
    HandedBack,
    ResetEvent,
    StatusEvent,
    TaskEvent,
    event_from_fields,
)
from .ids import START, SUBMISSION, EventId, check_name, new_task_id
from .keys import Keyspace
from .limits import Limits
from .money import micros_to_usd, usd_to_micros
from .request import HistoryMessage, OnRetry, TaskRequest
from .settings import Settings
from .state import FINAL_STATES, TRANSITIONS, TaskState

__all__ = [
    "FINAL_STATES",
    "START",
    "SUBMISSION",
    "TRANSITIONS",
    "AgentCard",
    "ChunkEvent",
    "EventId",
    "FailureCode",
    "FinalEvent",
    "FollowedEvent",
    "HandedBack",
    "HistoryMessage",
    "Keyspace",
    "Limits",
    "OnRetry",
    "ResetEvent",
    "Settings",
    "SkillCard",
    "SkillstreamError",
    "StatusEvent",
    "TaskEvent",
    "TaskRequest",
    "TaskState",
    "check_name",
    "event_from_fields",
    "micros_to_usd",
    "new_task_id",
    "usd_to_micros",
]
