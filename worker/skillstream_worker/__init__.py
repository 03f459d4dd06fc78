"""Run agents' skills as tasks: register skills on an agent, start a worker."""

from skillstream_schemas.errors import MissingExtra

try:
    from skillstream.cutting import Boundary

    from .agent import Agent, SocietyAgent
    from .app import Worker
    from .chunking import Chunking
    from .context import TaskContext
    from .response import Response
    from .retry import Retry
    from .stock import arq_settings
    from .sync_context import SyncTaskContext
except ModuleNotFoundError as error:
    raise MissingExtra.of(error, "workers need", "worker") from None

__all__ = [
    "Agent",
    "Boundary",
    "Chunking",
    "Response",
    "Retry",
    "SocietyAgent",
    "SyncTaskContext",
    "TaskContext",
    "Worker",
    "arq_settings",
]
