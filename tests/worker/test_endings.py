"""How the time of an attempt is bounded, decided without a server."""

from __future__ import annotations

import pytest

from skillstream_schemas.request import TaskRequest
from skillstream_worker.endings import time_limit
from skillstream_worker.skill import Skill


async def _say(message: str) -> str:
    return message


@pytest.mark.parametrize(
    ("timeout_s", "deadline", "code"),
    [(5.0, 10_000, "timeout"), (20.0, 10_000, "deadline_exceeded"), (None, 10_000, "deadline_exceeded"), (5.0, None, "timeout")],
)
def test_the_bound_that_was_nearer_names_the_end_of_the_time(timeout_s: float | None, deadline: int | None, code: str) -> None:
    """A clock read at the end may stand a moment before the deadline that has just run out: it does not decide."""
    request = TaskRequest(agent="a", skill="s", message="m", deadline=deadline)
    end = time_limit(Skill("s", _say, timeout_s=timeout_s), request, 0).ending()
    assert end.error == code
