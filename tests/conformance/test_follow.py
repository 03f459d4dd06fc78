"""Traces of followers: what a cursor is worth behind a reconnect (rule P15)."""

from __future__ import annotations

import pytest

from skillstream_schemas.errors import StreamGap
from skillstream_schemas.event import ResetEvent
from tests.client.bounds import soon

from .stage import Stage


@pytest.mark.guarantee("G3", "G5")
async def test_a_follower_of_an_attempt_that_was_given_again_starts_over(stage: Stage) -> None:
    """P15. A follower stands in attempt 1 of W1 · the new server has attempt 1 of W2, longer than its cursor · connected again,
    it compares the claim of the opening: a reset, then all from 0-1; never the words of two workers as one text."""
    seam = await stage.seam("client")
    task, first = await stage.opened_by_hand("mine ", "and more")
    events = task.events()
    seen = [await soon(anext(events)) for _ in range(4)]
    assert [str(event.id) for event in seen if not isinstance(event, ResetEvent)] == ["0-1", "1-1", "1-2", "1-3"]
    entries = stage.view.entries(task.id)
    other = entries[1][1] | {"claim": str(first + 1), "worker": "w2"}
    chunks = [(f"1-{seq}", {"type": "chunk", "text": text, "at": "1"}) for seq, text in enumerate("xyz", 2)]
    stage.go_back(task.id, entries[0], ("1-1", other), *chunks)
    seam.drop()
    again = [await soon(anext(events)) for _ in range(6)]
    assert again[0] == ResetEvent(attempt=0, keep=0)
    assert [str(event.id) for event in again[1:] if not isinstance(event, ResetEvent)] == ["0-1", "1-1", "1-2", "1-3", "1-4"]
    await events.aclose()
    await stage.close_by_hand(task.id)


@pytest.mark.guarantee("G3")
async def test_a_follower_that_kept_its_claim_goes_on_where_nothing_was_lost(stage: Stage) -> None:
    """P15. The connection breaks, the server behind it lost nothing · the opening shows the same claim and the top is not below
    the cursor: the follower goes on, without a reset and without a doubled event."""
    seam = await stage.seam("client")
    task, _ = await stage.opened_by_hand("one")
    events = task.events()
    for _ in range(3):
        await soon(anext(events))
    seam.drop()
    stage.say(task.id, "1-3", "two")
    assert str((await soon(anext(events))).id) == "1-3"  # type: ignore[union-attr]
    await events.aclose()
    await stage.close_by_hand(task.id)


@pytest.mark.guarantee("G3")
async def test_a_process_that_brings_only_a_cursor_checks_the_top(stage: Stage) -> None:
    """P15. A process comes back with the cursor 1-5 · the stream's top is 1-2: a reset, then all from 0-1. With a cursor that
    the stream reaches it reads on behind it, whoever wrote there: it has no claim to compare."""
    task, _ = await stage.opened_by_hand("one")
    events = task.events(after="1-5")
    assert await soon(anext(events)) == ResetEvent(attempt=0, keep=0)
    assert str((await soon(anext(events))).id) == "0-1"  # type: ignore[union-attr]
    await events.aclose()
    stage.say(task.id, "1-3", "two")
    later = task.events(after="1-2")
    assert str((await soon(anext(later))).id) == "1-3"  # type: ignore[union-attr]
    await later.aclose()
    await stage.close_by_hand(task.id)


@pytest.mark.guarantee("G3")
async def test_a_hole_is_named(stage: Stage) -> None:
    """P15. A publisher that does not look after a failover leaves 1-4 behind 1-2 · every reader hears of it: StreamGap."""
    task, _ = await stage.opened_by_hand("one")
    stage.say(task.id, "1-4", "three")
    with pytest.raises(StreamGap, match=r"1-2.*1-4"):
        async for _ in task.events():
            pass
    await stage.close_by_hand(task.id)
