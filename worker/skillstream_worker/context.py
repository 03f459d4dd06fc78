"""What a skill is given beside its message."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from skillstream import Client
from skillstream_schemas.event import FollowedEvent
from skillstream_schemas.request import HistoryMessage, TaskRequest, compact_json

from .publication import Publication


class TaskDetails:
    """What is known of the task that a skill runs.

    Fields: task_id, context_id (alias session_id), agent, skill_name, attempt (1, 2, …), partial_text (what earlier
    attempts said, where the skill resumes), sender_id, payer, traceparent, metadata, data, conversation_history (oldest first,
    each {"role": "user" | "agent", "text": …}), deadline (a moment, or None), log; request and history as they came.
    """

    def __init__(
        self,
        *,
        task_id: str,
        attempt: int,
        request: TaskRequest,
        history: list[HistoryMessage],
        partial_text: str,
        log: logging.LoggerAdapter[logging.Logger],
    ) -> None:
        self.task_id = task_id
        self.request = request
        self.history = history
        self.context_id = request.context_id
        self.agent = request.agent
        self.skill_name = request.skill
        self.attempt = attempt
        self.partial_text = partial_text
        self.sender_id = request.sender_id
        self.payer = request.payer
        self.traceparent = request.traceparent
        self.metadata: dict[str, Any] = dict(request.metadata or {})
        self.data: Any = request.data
        self.conversation_history = [{"role": turn.role, "text": turn.text} for turn in history]
        self.deadline = None if request.deadline is None else datetime.fromtimestamp(request.deadline / 1000, UTC)
        self.log = log

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.task_id} {self.agent}/{self.skill_name} attempt={self.attempt}>"

    @property
    def session_id(self) -> str | None:
        """The context id, under the Society AI SDK's name."""
        return self.context_id


class TaskContext(TaskDetails):
    """The task that a skill runs: who asks, what was said before, and ways to report and delegate.

    Beside the fields of TaskDetails: cancelled (an event, set when the attempt is to end).
    """

    def __init__(
        self,
        *,
        task_id: str,
        attempt: int,
        request: TaskRequest,
        history: list[HistoryMessage],
        partial_text: str,
        publication: Publication,
        client: Client,
        log: logging.LoggerAdapter[logging.Logger],
    ) -> None:
        super().__init__(task_id=task_id, attempt=attempt, request=request, history=history, partial_text=partial_text, log=log)
        self.cancelled = asyncio.Event()
        self.counted: dict[str, int | float] = {}
        self._publication = publication
        self._client = client
        self._children = 0

    async def status(self, text: str, progress: float | None = None, metadata: dict[str, Any] | None = None) -> None:
        """Reports progress (0 to 1) that is shown and not accumulated; raises EventTooLarge, ValueError."""
        add_status(self._publication, text, progress, metadata)
        await self._publication.room()

    async def patch(self, operations: Sequence[Mapping[str, Any]]) -> None:
        """Says a change of the snapshot before as a JSON Patch (RFC 6902); raises EventTooLarge, ValueError, TypeError.

        The final's `data` is the last snapshot that the skill yields: yield the whole one behind the patches.
        """
        self._publication.add_entry("type", "chunk", "mode", "delta", "data", compact_json(list(operations)))
        await self._publication.room()

    def usage(self, **counts: int | float) -> None:
        """Adds to the usage that the final carries, such as `usage(input_tokens=12, output_tokens=80)`; raises ValueError."""
        for name, count in counts.items():
            if not math.isfinite(count):
                raise ValueError(f"usage {name}={count} is not a finite number")
            self.counted[name] = self.counted.get(name, 0) + count

    async def delegate(self, agent: str, skill: str, message: str, **options: Any) -> AsyncGenerator[FollowedEvent, None]:
        """Has another agent's skill do a part: submits a child task and yields its events up to its final.

        A newer attempt that delegates the same things in the same order finds the same child tasks: nothing runs
        or is charged twice. Options and errors are those of `Client.submit`, and Unpublishable behind the attempt's end.
        """
        self._publication.check()
        self._children += 1
        seed = compact_json([self.task_id, self._children, agent, skill, message])
        child_id = f"sub-{sha256(seed.encode()).hexdigest()[:40]}"
        options = {"payer": self.payer, "context_id": None, **options}
        task = await self._client.submit(agent, skill, message, parent=self.task_id, task_id=child_id, **options)
        async with aclosing(task.events()) as events:
            async for event in events:
                yield event


def add_status(publication: Publication, text: str, progress: float | None, metadata: Any) -> None:
    """Says a progress report; raises EventTooLarge, and ValueError or TypeError for metadata that is not JSON."""
    fields = ["type", "status", "state", "working", "text", text]
    if progress is not None:
        if not 0 <= progress <= 1:
            raise ValueError(f"progress {progress} is not between 0 and 1")
        fields += ["progress", str(progress)]
    if metadata is not None:
        fields += ["metadata", compact_json(dict(metadata))]
    publication.add_entry(*fields)
