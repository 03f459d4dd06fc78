"""What a skill yields or returns when a plain string does not say enough."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from skillstream_schemas.state import TaskState


@dataclass(frozen=True, slots=True)
class Response:
    """A progress report (`status="working"`) or the end of a task (any final status, `completed` by default).

    `progress` is 0 to 1 and goes with `working`. `text` of a working Response is shown, not accumulated; that of
    a final one counts only where nothing was accumulated. `metadata` must be JSON.
    """

    text: str = ""
    status: str = TaskState.COMPLETED.value
    metadata: Mapping[str, Any] | None = None
    progress: float | None = None

    def __post_init__(self) -> None:
        """Raises ValueError for a status or progress that does not exist, TypeError for text or metadata of another type."""
        if not isinstance(self.text, str):
            raise TypeError(f"the text of a Response is a str, not {type(self.text).__name__}")
        if self.metadata is not None and not isinstance(self.metadata, Mapping):
            raise TypeError(f"the metadata of a Response is a mapping, not {type(self.metadata).__name__}")
        state = TaskState(self.status)
        if state is TaskState.SUBMITTED:
            raise ValueError("a skill cannot set the status submitted")
        if self.progress is not None and not 0 <= self.progress <= 1:
            raise ValueError(f"progress {self.progress} is not between 0 and 1")

    @property
    def state(self) -> TaskState:
        """The status as a task state."""
        return TaskState(self.status)
