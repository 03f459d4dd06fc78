"""What services import to run skills: submit tasks, follow them live, resume, await, cancel."""

from __future__ import annotations

from skillstream_schemas import (
    AgentCard,
    ChunkEvent,
    EventId,
    FinalEvent,
    FollowedEvent,
    HistoryMessage,
    ResetEvent,
    Settings,
    SkillstreamError,
    StatusEvent,
    TaskState,
)
from skillstream_schemas.errors import (
    BrokerAccessDenied,
    BrokerRefused,
    BrokerUnavailable,
    InvalidName,
    InvalidRequest,
    InvalidSettings,
    MalformedEntry,
    MessageTooLarge,
    NotAllSubmitted,
    NotReplicated,
    ResultTimeout,
    ShardsMismatch,
    StreamGap,
    StreamLost,
    TaskIdTaken,
    TextReset,
    UnknownAgent,
    UnknownSkill,
    UnknownTask,
)

from .client import Client, Conversation
from .order import Order
from .sync_client import SyncClient, SyncTask
from .task import Task

__all__ = [
    "AgentCard",
    "BrokerAccessDenied",
    "BrokerRefused",
    "BrokerUnavailable",
    "ChunkEvent",
    "Client",
    "Conversation",
    "EventId",
    "FinalEvent",
    "FollowedEvent",
    "HistoryMessage",
    "InvalidName",
    "InvalidRequest",
    "InvalidSettings",
    "MalformedEntry",
    "MessageTooLarge",
    "NotAllSubmitted",
    "NotReplicated",
    "Order",
    "ResetEvent",
    "ResultTimeout",
    "Settings",
    "ShardsMismatch",
    "SkillstreamError",
    "StatusEvent",
    "StreamGap",
    "StreamLost",
    "SyncClient",
    "SyncTask",
    "Task",
    "TaskIdTaken",
    "TaskState",
    "TextReset",
    "UnknownAgent",
    "UnknownSkill",
    "UnknownTask",
]

__version__: str


def __getattr__(name: str) -> str:
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import version  # only who asks waits for it

    return version("skillstream")
