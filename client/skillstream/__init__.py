"""What services import to run skills: submit tasks, follow them live, resume, await, cancel."""

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
    BrokerRefused,
    BrokerUnavailable,
    InvalidRequest,
    MalformedEntry,
    NotReplicated,
    ResultTimeout,
    StreamGap,
    StreamLost,
    TaskIdTaken,
    TextReset,
    UnknownAgent,
    UnknownSkill,
    UnknownTask,
)

from .client import Client, Conversation
from .sync_client import SyncClient, SyncTask
from .task import Task

__all__ = [
    "AgentCard",
    "BrokerRefused",
    "BrokerUnavailable",
    "ChunkEvent",
    "Client",
    "Conversation",
    "EventId",
    "FinalEvent",
    "FollowedEvent",
    "HistoryMessage",
    "InvalidRequest",
    "MalformedEntry",
    "NotReplicated",
    "ResetEvent",
    "ResultTimeout",
    "Settings",
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
