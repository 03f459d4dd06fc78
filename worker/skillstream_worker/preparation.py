"""What comes between the opening of an attempt and its skill's first step."""

from __future__ import annotations

import logging

from skillstream import Client
from skillstream_schemas.errors import BrokerUnavailable, FailureCode

from .broker import Lease, WorkerBroker
from .context import TaskContext
from .endings import named
from .history import conversation, has_history
from .openings import Opened
from .outcome import End
from .publication import Publication

log = logging.getLogger(__name__)


async def prepare(
    broker: WorkerBroker, client: Client, lease: Lease, opened: Opened, kept: str, publication: Publication
) -> TaskContext | End:
    """What the skill is given, or the end of the task where that cannot be made; `kept` is the text that stands.

    The next attempt would fare no better: used up one by one they would hide the cause. Raises BrokerUnavailable.
    """
    request = opened.request
    try:
        return TaskContext(
            task_id=lease.task_id,
            attempt=opened.attempt,
            request=request,
            history=await conversation(broker, request) if has_history(request) else [],
            partial_text=kept,
            publication=publication,
            client=client,
            log=logging.LoggerAdapter(log, {"task_id": lease.task_id, "attempt": opened.attempt}),
        )
    except BrokerUnavailable:
        raise
    except Exception as error:
        log.exception("task %s: its skill cannot be given what it needs", lease.task_id)
        return End.failed(FailureCode.CONTEXT_ERROR, named(error))
