"""What the router does about a task stands in its log in words, not as the names of its classes."""

from __future__ import annotations

import pytest

from skillstream.closing import Verdict
from skillstream_router.diagnosis import Close, CloseAsRecorded, EndLost, Enqueue, Remedy, Settle
from skillstream_schemas.errors import FailureCode
from skillstream_schemas.state import TaskState

CANCELED = Close(Verdict(TaskState.CANCELED, "the reader left"))
EXPIRED = Close(Verdict(TaskState.FAILED, "too late", FailureCode.EXPIRED))


@pytest.mark.parametrize("remedy", [CANCELED, EXPIRED, CloseAsRecorded(), EndLost(), Enqueue(), Settle()], ids=repr)
def test_a_remedy_is_said_in_words(remedy: Remedy) -> None:
    assert not set("()<>=") & set(str(remedy)), remedy
    assert type(remedy).__name__ not in str(remedy)


def test_an_end_from_outside_says_state_code_and_reason() -> None:
    assert str(CANCELED) == "nobody ends it, it is closed as canceled: the reader left"
    assert str(EXPIRED) == "nobody ends it, it is closed as failed, expired: too late"
