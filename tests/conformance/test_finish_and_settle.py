"""Traces between a final and the end of its job (rules P6, P7, P16)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.client.bounds import soon, until
from tests.support.verbs import AGENT
from tests.worker.test_stock import StockWorker

from .stage import Stage

OUT_OF_MEMORY = "OOM command not allowed when used memory > 'maxmemory'."


@pytest.mark.guarantee("G8")
async def test_a_job_is_settled_behind_the_answer_to_its_final(stage: Stage) -> None:
    """P7. The final is executed, its answer is late · no settlement is sent before it is here: on a cluster, or with a final
    that is refused, the job would be gone and the stream open."""
    seam = await stage.seam("w1")
    late = seam.late_answer("finish")
    await stage.worker()
    task = await stage.submit(["say", "done"])
    await late.happened()
    assert stage.is_final(task.id)
    assert stage.view.score(task.id) is not None
    assert seam.count("settle") == 0
    late.release()
    await stage.settled(task.id)
    assert seam.passed.index("finish") < seam.passed.index("settle")


@pytest.mark.guarantee("G8", "G1")
async def test_a_final_that_is_refused_leaves_the_job(stage: Stage) -> None:
    """P7. W1's final finds no memory for longer than its patience, a settlement would find it · none is sent, the job comes
    back, and a later attempt ends the task."""
    seam = await stage.seam("w1")
    refused = seam.refuse("finish", error=OUT_OF_MEMORY, times=1000)
    await stage.worker(lease_s=1, patience_s=0.1)
    task = await stage.submit(["say", "done"])
    await until(lambda: "2-1" in stage.view.ids(task.id))
    assert stage.view.score(task.id) is not None
    assert seam.count("settle") == 0
    refused.release()
    assert (await stage.settled(task.id))["state"] == "completed"
    assert stage.view.rings(task.id).count("final") == 1


@pytest.mark.guarantee("G7", "G8")
async def test_a_final_whose_worker_died_has_rung(stage: Stage) -> None:
    """P6. W1's final is executed and W1 dies before the answer · W2 claims, finds the final and settles: final and ring are one
    step, so a router hears of it although nobody is left to ring."""
    seam = await stage.seam("w1")
    lost = seam.lose_answer("finish")
    await stage.worker("w1")
    task = await stage.submit(["say", "done"])
    await lost.happened()
    seam.cut_off()
    stage.lapse(task.id)
    await stage.worker("w2")
    await stage.settled(task.id)
    assert len(stage.gates.contexts) == 1
    assert stage.view.rings(task.id) == ["submitted", "opened", "final"]
    await stage.router()
    await stage.charged_once(task.id)


@pytest.mark.guarantee("G4", "G8")
async def test_a_final_that_did_not_arrive_settles_nothing_of_a_newer_attempt(stage: Stage) -> None:
    """P6. W1's final never arrives · its lease ends, W2 opens attempt 2 · W1's final, sent again, is refused: that does not
    mean that it had arrived; the top is of a newer attempt, so W1 stops and the job stays W2's."""
    seam = await stage.seam("w1")
    lost, resent = seam.lose("finish"), seam.hold("finish")
    w1 = await stage.worker("w1")
    task = await stage.submit(["attempt", 2, ["reach", "second"], ["wait", "end"]], ["say", "done"])
    await lost.happened()
    await resent.happened()
    stage.lapse(task.id)
    await stage.worker("w2")
    await stage.gates.reached("second")
    resent.release()
    await until(lambda: not w1.running)
    assert seam.count("settle") == 0
    assert (stage.view.lease(task.id) or "").startswith("w2:")
    assert stage.view.score(task.id) is not None
    stage.gates.open("end")
    await stage.settled(task.id)
    assert stage.view.ids(task.id) == ["0-1", "1-1", "1-2", "2-1", "2-2", "2-3"]


@pytest.mark.guarantee("G2", "G8")
@pytest.mark.parametrize("fault", ["answer lost", "repeated"])
async def test_a_final_that_comes_twice_stands_there_once(stage: Stage, fault: str) -> None:
    """P6. The final is executed, its answer lost or the command doubled · the second copy finds it on top: it is there, the job
    is settled, no second final and no second ring."""
    seam = await stage.seam("w1")
    hook = seam.lose_answer("finish") if fault == "answer lost" else seam.repeat("finish")
    await stage.worker("w1")
    task = await stage.submit(["say", "done"])
    await hook.happened()
    await stage.settled(task.id)
    assert seam.count("finish") == 2
    assert stage.view.ids(task.id) == ["0-1", "1-1", "1-2", "1-3"]
    assert stage.view.rings(task.id).count("final") == 1


@pytest.mark.guarantee("G2", "G4")
async def test_a_final_that_arrives_late_stands_nowhere(stage: Stage) -> None:
    """P6. W1's final stays on its way · sent again, it is held, and W2 opens attempt 2 · the first copy arrives: its attempt's
    last entry is not on top, nothing is added."""
    seam = await stage.seam("w1")
    kept, resent = seam.keep("finish"), seam.hold("finish")
    await stage.worker("w1")
    task = await stage.submit(["attempt", 2, ["reach", "second"], ["wait", "end"]], ["say", "done"])
    await resent.happened()
    stage.lapse(task.id)
    await stage.worker("w2")
    await stage.gates.reached("second")
    assert b"other" in (await kept.arrive())[0]
    assert not stage.is_final(task.id)
    resent.release()
    stage.gates.open("end")
    await stage.settled(task.id)
    assert b"other" in (await kept.arrive())[0]
    assert stage.view.final(task.id)["text"] == "done"
    assert stage.view.rings(task.id).count("final") == 1


@pytest.mark.guarantee("G6", "G8")
async def test_a_late_enqueue_makes_a_job_that_the_next_claim_settles(stage: Stage) -> None:
    """P1, P7. A submission's second step stays on its way · sent again, the task runs and ends · the first copy arrives: the
    job it makes is claimed, found final and settled; nothing runs twice."""
    kept = (await stage.seam("client")).keep("enqueue")
    await stage.worker("w1")
    task = await stage.submit(["say", "done"])
    await stage.settled(task.id)
    before = stage.view.entries(task.id)
    await kept.arrive()
    await stage.settled(task.id)
    assert stage.view.entries(task.id) == before
    assert len(stage.gates.contexts) == 1


@pytest.fixture
async def stock(stage: Stage) -> AsyncIterator[StockWorker]:
    """A stock arq worker as it is."""
    started = StockWorker(stage.agent(), stage.settings)
    yield started
    stage.gates.open("end")
    await until(lambda: all(job.done() for job in started.tasks.values()))
    await started.stop()


@pytest.mark.guarantee("G4", "G8")
@pytest.mark.filterwarnings("ignore:Call to deprecated close:DeprecationWarning")  # by arq itself
async def test_a_stock_worker_that_wakes_finishes_no_job_that_ours_runs(stage: Stage, stock: StockWorker) -> None:
    """P16. A stock worker's in-progress key ends while it runs · ours claims and opens attempt 2 · the stock worker's skill is
    done: arq would delete job, owner, counter and member without asking, so the function waits for the final of the other."""
    task = await stage.submit(
        ["attempt", 1, ["reach", "first"], ["wait", "go on"], ["say", "late"]],
        ["attempt", 2, ["reach", "second"], ["wait", "end"], ["say", "ours"]],
    )
    await stage.gates.reached("first")
    stock.allow_pick_jobs = False  # else it may be the one that claims the job again
    stage.lapse(task.id)
    await stage.worker("w2")
    await stage.gates.reached("second")
    stage.gates.open("go on")
    await until(lambda: stage.gates.closed == [1])
    running = asyncio.gather(*stock.tasks.values())
    assert len(stage.view.arq_keys_of(task.id)) == 3
    assert (stage.view.lease(task.id) or "").startswith("w2:")
    assert not running.done()
    stage.gates.open("end")
    assert (await stage.settled(task.id))["text"] == "ours"
    await soon(running)
    assert stage.view.queued(AGENT) == []
