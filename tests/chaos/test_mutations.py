"""Each fault of the mutation run can still be planted; `make mutations` plants them and has the checker find them."""

from __future__ import annotations

import pytest

from .mutations import MUTATIONS, ROOT, Mutation, place_of
from .situations import SITUATIONS


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name.replace(" ", "-"))
def test_a_fault_can_be_planted(mutation: Mutation) -> None:
    assert mutation.situation in SITUATIONS
    for part, old, new in mutation.changes:
        assert place_of(ROOT, part, old).exists()
        assert old != new


def test_every_situation_has_its_fault() -> None:
    assert {mutation.situation for mutation in MUTATIONS} == set(SITUATIONS)
