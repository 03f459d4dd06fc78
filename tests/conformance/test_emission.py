"""Traces of an attempt's entries: dense ids, content that stays, no stream made again (rule P5)."""

from __future__ import annotations

import pytest

from skillstream_worker import Chunking
from tests.client.bounds import until
from tests.support.protocol_bench import is_dense

from .stage import Stage


@pytest.mark.guarantee("G3", "G5")
@pytest.mark.parametrize("refused", ["1-2", "1-3", "1-4"])
async def test_an_entry_that_is_refused_alone_leaves_no_hole(stage: Stage, refused: str) -> None:
    """P5. Several entries go together, one of them finds no memory, those behind it would · a transaction adds all or none:
    sent again, the ids are dense. Without it, the refusal of the first copy's rest reads as if all had arrived."""
    seam = await stage.seam("w1")
    hook = seam.refuse("XADD", refused, error="OOM command not allowed when used memory > 'maxmemory'.")
    await stage.worker(agent=stage.agent(chunking=Chunking.off()))
    task = await stage.submit(*(["say", letter] for letter in "abcd"))
    assert (await stage.settled(task.id))["text"] == "abcd"
    await hook.happened()
    assert "EXEC" in seam.passed
    assert stage.view.texts(task.id) == list("abcd")
    assert is_dense(stage.view.ids(task.id))


@pytest.mark.guarantee("G3", "G5")
@pytest.mark.parametrize("moment", ["before the look", "between look and resend", "behind the resend"])
@pytest.mark.parametrize("unit", ["one entry", "transaction"])
async def test_a_copy_that_arrives_late_changes_nothing_that_was_said(stage: Stage, moment: str, unit: str) -> None:
    """P5. `1-2 [a]` is sent and its connection breaks · meanwhile more is said · the old copy is executed late, before or
    behind the new one: an id that was sent keeps its content, so nothing is lost whichever copy wins."""
    entry = "1-2" if unit == "one entry" else "1-3"
    seam = await stage.seam("w1")
    kept = seam.keep("XADD", entry)
    halts = {"before the look": ("XREVRANGE",), "between look and resend": ("XADD", entry)}
    halted = seam.hold(*halts[moment]) if moment in halts else None
    await stage.worker(agent=stage.agent(chunking=Chunking() if unit == "one entry" else Chunking.off()))
    task = await stage.submit(["say", "a"], ["say", "b"], ["wait", "more"], ["say", "c"], ["say", "d"])
    await kept.happened()
    if halted is not None:
        await halted.happened()
        await kept.arrive()
        halted.release()
    stage.gates.open("more")
    final = await stage.settled(task.id)
    if halted is None:
        assert any(b"ERR" in answer for answer in await kept.arrive())
    texts = stage.view.texts(task.id)
    assert "".join(texts) == final["text"] == "abcd"
    assert final["chunks"] == str(len(texts))
    assert is_dense(stage.view.ids(task.id))


@pytest.mark.guarantee("G1", "G3")
@pytest.mark.parametrize("command", ["XADD", "finish"])
async def test_an_expired_stream_is_not_made_again_and_its_task_not_run_again(stage: Stage, command: str) -> None:
    """P5, P6, P14. A chunk or a final is under way · the stream is gone · it arrives: no stream is made by it, the attempt ends
    · the job is claimed again, found without a stream and never run; the router ends the task as lost."""
    seam = await stage.seam("w1")
    held = seam.hold(command)
    w1 = await stage.worker(lease_s=1)
    task = await stage.submit(["say", "done"])
    await held.happened()
    stage.outside.delete(stage.keys.events(task.id))
    held.release()
    await until(lambda: not w1.running)
    assert not stage.outside.exists(stage.keys.events(task.id))
    assert stage.view.score(task.id) is not None
    assert seam.count("settle") == 0
    await until(lambda: "gone" in stage.view.rings(task.id))
    await stage.router()
    assert (await stage.settled(task.id))["error"] == "stream_lost"
    await until(lambda: stage.ledger.state(task.id) == "failed")
    assert stage.ledger.balances() == {}
    assert len(stage.gates.contexts) == 1
