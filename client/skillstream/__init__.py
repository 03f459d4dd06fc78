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

from .client import Client, Conversation
from .sync_client import SyncClient, SyncTask
from .task import Task

__all__ = [
    "AgentCard",
    "ChunkEvent",
    "Client",
    "Conversation",
    "EventId",
    "FinalEvent",
    "FollowedEvent",
    "HistoryMessage",
    "ResetEvent",
    "Settings",
    "SkillstreamError",
    "StatusEvent",
    "SyncClient",
    "SyncTask",
    "Task",
    "TaskState",
]
