"""One table of states: submitted → working → a final one, and nothing after it."""

from __future__ import annotations

from itertools import product

import pytest

from skillstream_schemas.errors import InvalidTransition
from skillstream_schemas.state import FINAL_STATES, TaskState

FINALS = {"completed", "failed", "canceled", "input-required"}
LEGAL = (
    {("submitted", "working"), ("working", "working")}
    | {("submitted", final) for final in FINALS}
    | {("working", final) for final in FINALS}
)
"""A task may end before a worker opened it; `working` follows `working` where another attempt opens."""


def test_the_states_are_those_of_the_contract() -> None:
    assert {str(state) for state in TaskState} == {"submitted", "working"} | FINALS
    assert {str(state) for state in FINAL_STATES} == FINALS


@pytest.mark.parametrize("state", TaskState)
def test_the_last_four_are_final(state: TaskState) -> None:
    assert state.is_final is (str(state) in FINALS)


@pytest.mark.guarantee("G2")
@pytest.mark.parametrize(("before", "after"), list(product(TaskState, TaskState)))
def test_every_pair_of_states(before: TaskState, after: TaskState) -> None:
    if (str(before), str(after)) in LEGAL:
        assert before.check(after) is after
    else:
        with pytest.raises(InvalidTransition, match=f"{after} may not follow {before}"):
            before.check(after)
