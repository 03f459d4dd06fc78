"""Traces of clients: submissions that break half way, cancellations that meet workers (rules P1, P9, P10)."""

from __future__ import annotations

import asyncio

import pytest

from skillstream_schemas.errors import BrokerUnavailable
from tests.client.bounds import soon, until

from .stage import Stage

MINUTE_MS = 60_000


@pytest.mark.guarantee("G1", "G6")
@pytest.mark.parametrize("repair", ["submitted again", "by the router"])
async def test_a_submission_that_broke_half_way_is_repaired(stage: Stage, repair: str) -> None:
    """P1, P14. 0-1 is on its stream, the client dies before it enqueues · the ring went with 0-1, so a router knows the task
    and enqueues it after half a minute; the same submission again does so at once."""
    seam = await stage.seam("dying")
    await stage.client("dying", patience_s=0.1)
    kept = seam.keep("enqueue")
    broken = asyncio.ensure_future(stage.submit(["say", "done"], client="dying", task_id="half"))
    await kept.happened()
    seam.cut_off()
    assert stage.view.ids("half") == ["0-1"]
    assert stage.view.rings("half") == ["submitted"]
    assert stage.view.queued() == []
    await stage.worker()
    if repair == "submitted again":
        await stage.submit(["say", "done"], task_id="half")
    else:
        stage.clock.ahead_ms = MINUTE_MS
        await stage.router()
    assert (await stage.settled("half"))["text"] == "done"
    assert len(stage.gates.contexts) == 1
    with pytest.raises(BrokerUnavailable):
        await soon(broken)


@pytest.mark.guarantee("G6")
@pytest.mark.parametrize("script", ["submit", "enqueue"])
@pytest.mark.parametrize("fault", ["lost", "answer lost", "repeated"])
async def test_a_step_of_a_submission_that_comes_twice_runs_once(stage: Stage, script: str, fault: str) -> None:
    """P1. A step of a submission is lost, or executed and its answer lost, or doubled · both steps may be repeated: one stream,
    one job, one run."""
    seam = await stage.seam("client")
    make = {"lost": seam.lose, "answer lost": seam.lose_answer, "repeated": seam.repeat}[fault]
    hook = make(script)
    await stage.worker()
    task = await stage.submit(["say", "done"])
    await hook.happened()
    await stage.settled(task.id)
    assert stage.view.rings(task.id) == ["submitted", "opened", "final"]
    assert len(stage.gates.contexts) == 1


@pytest.mark.guarantee("G9", "G1")
async def test_a_cancellation_outlives_its_canceller_where_no_worker_lives(stage: Stage) -> None:
    """P9, P14. The cancel key is set, the canceller dies, no worker is there · the cancellation has rung: the router closes the
    task."""
    task = await stage.submit(["say", "done"])
    seam = await stage.seam("dying")
    lost = seam.lose_answer("cancel")
    client = await stage.client("dying", patience_s=0.1)
    canceling = asyncio.ensure_future(client.task(task.id).cancel("enough"))
    await lost.happened()
    seam.cut_off()
    stage.clock.ahead_ms = MINUTE_MS
    await stage.router()
    final = await stage.settled(task.id)
    assert (final["state"], final["reason"]) == ("canceled", "enough")
    assert stage.gates.contexts == []
    with pytest.raises(BrokerUnavailable):
        await soon(canceling)


@pytest.mark.guarantee("G9", "G8")
@pytest.mark.parametrize("settles", ["router", "worker"])
async def test_a_task_closed_by_a_canceller_that_dies_is_settled_by_another(stage: Stage, settles: str) -> None:
    """P7, P9. The canceller closes a queued task and dies before it settles · the job has no owner: whoever finds the final
    settles."""
    task = await stage.submit(["say", "done"])
    seam = await stage.seam("dying")
    kept = seam.keep("settle")
    client = await stage.client("dying", patience_s=0.1)
    canceling = asyncio.ensure_future(client.task(task.id).cancel("enough"))
    await kept.happened()
    seam.cut_off()
    assert stage.is_final(task.id)
    assert stage.view.score(task.id) is not None
    await (stage.router() if settles == "router" else stage.worker())
    await stage.settled(task.id)
    assert stage.gates.contexts == []
    with pytest.raises(BrokerUnavailable):
        await soon(canceling)


@pytest.mark.guarantee("G9", "G2")
async def test_of_a_canceller_and_an_opener_one_closes(stage: Stage) -> None:
    """P4, P9. A cancellation of a queued task is recorded, the canceller stalls before it closes · a worker claims and opens:
    it sees the key and closes · the canceller's close finds the final and returns that one."""
    task = await stage.submit(["say", "done"])
    held = (await stage.seam("canceller")).hold("close")
    client = await stage.client("canceller")
    canceling = asyncio.ensure_future(client.task(task.id).cancel("enough"))
    await held.happened()
    await stage.worker("w1")
    await stage.settled(task.id)
    held.release()
    final = await soon(canceling)
    assert (final.state, str(final.id)) == ("canceled", stage.view.ids(task.id)[-1])
    assert stage.view.opening(task.id)["worker"] == "w1"
    assert stage.gates.contexts == []


@pytest.mark.guarantee("G9")
async def test_a_worker_that_opens_first_hears_of_the_cancellation(stage: Stage) -> None:
    """P9. The cancellation is on its way, a worker opens attempt 1 · the answer says so: its worker closes, with the text so
    far."""
    held = (await stage.seam("canceller")).hold("cancel")
    task = await stage.submit(["say", "so far"], ["reach", "running"], ["wait", "never"])
    client = await stage.client("canceller")
    canceling = asyncio.ensure_future(client.task(task.id).cancel("enough"))
    await held.happened()
    await stage.worker()
    await stage.gates.reached("running")
    held.release()
    final = await soon(canceling)
    assert (final.state, final.text, final.reason) == ("canceled", "so far", "enough")
    assert stage.gates.closed == [1]
    await stage.settled(task.id)


@pytest.mark.guarantee("G9")
async def test_a_cancellation_whose_notice_is_late_is_found_by_looking(stage: Stage) -> None:
    """P9. The cancel key is set, the notice on the channel stays on its way · the worker looks three times a lease all the
    same."""
    held = (await stage.seam("client")).hold("PUBLISH")
    await stage.worker()
    task = await stage.submit(["say", "so far"], ["reach", "running"], ["wait", "never"])
    await stage.gates.reached("running")
    canceling = asyncio.ensure_future(task.cancel("enough"))
    await held.happened()
    assert (await stage.settled(task.id))["state"] == "canceled"
    held.release()
    assert (await soon(canceling)).text == "so far"


@pytest.mark.guarantee("G9", "G5")
async def test_a_cancellation_is_carried_out_by_whoever_takes_over(stage: Stage) -> None:
    """P9. W1 runs a task and dies, its cancellation is recorded · W2 claims: it closes instead of running, with W1's text."""
    seam = await stage.seam("w1")
    await stage.worker("w1")
    task = await stage.submit(["say", "so far"], ["reach", "running"], ["wait", "never"])
    await stage.gates.reached("running")
    await until(lambda: stage.chunks(task.id, 1) == "so far")
    seam.cut_off()
    canceling = asyncio.ensure_future(task.cancel("enough"))
    await until(lambda: "cancel" in stage.view.rings(task.id))
    stage.lapse(task.id)
    await stage.worker("w2")
    final = await soon(canceling)
    assert (final.state, final.text, str(final.id)) == ("canceled", "so far", "2-2")
    await stage.settled(task.id)
    assert len(stage.gates.contexts) == 1


@pytest.mark.guarantee("G9", "G5")
async def test_a_task_that_waits_for_its_next_attempt_is_canceled_at_once(stage: Stage) -> None:
    """P9, P10. An attempt is handed back and its task waits for half an hour · nobody writes on behind a hand-back: the
    canceller closes the task, with its text, as it closes a queued one."""
    await stage.worker()
    task = await stage.submit(["say", "so far"], ["retry", 1800])
    await until(lambda: (stage.view.score(task.id) or 0) > stage.view.now_ms() + MINUTE_MS)
    final = await soon(task.cancel("enough"))
    assert (final.state, final.text, final.reason, str(final.id)) == ("canceled", "so far", "enough", "2-2")
    await stage.settled(task.id)
    assert stage.view.shape(task.id)[-3:] == ["retry", "working", "final canceled"]
    assert stage.view.opening(task.id, 2)["worker"] == "canceller"
    assert len(stage.gates.contexts) == 1


@pytest.mark.guarantee("G9", "G8")
async def test_a_release_that_arrives_behind_a_cancellation_frees_nothing(stage: Stage) -> None:
    """P3, P9, P10. The hand-back stands on the stream, its worker's release is on its way · the task is canceled: closed and
    settled · the release arrives: its lease is gone, no job comes back."""
    held = (await stage.seam("w1")).hold("release")
    w1 = await stage.worker("w1")
    task = await stage.submit(["say", "so far"], ["retry", 0])
    await held.happened()
    assert (await soon(task.cancel("enough"))).state == "canceled"
    await stage.settled(task.id)
    before = stage.view.entries(task.id)
    held.release()
    await until(lambda: not w1.running)
    assert stage.view.queued() == []
    assert stage.view.entries(task.id) == before


@pytest.mark.guarantee("G15")
async def test_a_task_that_ended_is_not_kept_for_one_that_was_to_wait(stage: Stage) -> None:
    """P10, P13. An attempt is handed back for half an hour, a copy of the command that keeps its stream for that long stays on
    its way · canceled, the task is closed and recorded · the copy arrives: the expiry that the router gave stands."""
    kept = (await stage.seam("w1")).keep("extend")
    await stage.worker("w1")
    task = await stage.submit(["retry", 1800])
    await until(lambda: (stage.view.score(task.id) or 0) > stage.view.now_ms() + MINUTE_MS)
    await soon(task.cancel("enough"))
    await stage.router()
    stream, final_ttl_ms = stage.keys.events(task.id), stage.settings.final_ttl_s * 1000
    await until(lambda: stage.outside.pttl(stream) <= final_ttl_ms)
    await kept.arrive()
    assert 0 < stage.outside.pttl(stream) <= final_ttl_ms
