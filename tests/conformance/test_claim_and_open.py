"""Traces between a claim and its opening: who may open an attempt, and behind which text (rules P2, P3, P4, P8)."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import arq
import pytest
from arq.connections import RedisSettings
from arq.jobs import Job

from skillstream_schemas import keys as arq_keys
from skillstream_schemas.ids import EventId
from skillstream_schemas.job import pack, unpack
from skillstream_worker import Agent
from skillstream_worker.openings import Opened, Superseded
from tests.client.bounds import soon, until
from tests.support.verbs import AGENT

from .stage import Stage

HOUR_MS = 3_600_000


@pytest.mark.guarantee("G4")
async def test_a_worker_that_wakes_with_an_older_claim_opens_nothing(stage: Stage) -> None:
    """P4. W1 claims and stalls before it opens · its lease ends · W2 claims and opens attempt 1 · W1 wakes and opens: it is
    superseded, else the holder of the lease were fenced by one that holds nothing."""
    held = (await stage.seam("w1")).hold("open")
    w1 = await stage.worker("w1")
    task = await stage.submit(["reach", "running"], ["wait", "end"], ["say", "done"])
    await held.happened()
    stage.lapse(task.id)
    await stage.worker("w2")
    await stage.gates.reached("running")
    held.release()
    await until(lambda: not w1.running)
    assert stage.view.ids(task.id) == ["0-1", "1-1"]
    stage.gates.open("end")
    assert (await stage.settled(task.id))["text"] == "done"
    assert stage.view.opening(task.id)["worker"] == "w2"
    assert len(stage.gates.contexts) == 1


@pytest.mark.guarantee("G4")
async def test_an_opening_that_arrives_late_opens_nothing(stage: Stage) -> None:
    """P4. W1's opening stays on its way · its lease ends · W2 opens attempt 1 · both copies of W1's command arrive: superseded,
    without any worker behind the first."""
    seam = await stage.seam("w1")
    kept, resent = seam.keep("open"), seam.hold("open")
    w1, w2 = await stage.hand("w1"), await stage.hand("w2")
    task = await stage.submit(["say", "done"])
    lease = await stage.claimed(w1, task.id)
    opening = asyncio.ensure_future(w1.open_attempt(lease, None))
    await resent.happened()
    stage.lapse(task.id)
    assert (await stage.opened(w2, task.id))[1] == 1
    assert b"superseded" in (await kept.arrive())[0]
    resent.release()
    assert await soon(opening) == Superseded()
    assert stage.view.ids(task.id) == ["0-1", "1-1"]
    assert stage.view.opening(task.id)["worker"] == "w2"
    await finished_by_another(stage, task.id)


@pytest.mark.guarantee("G4")
async def test_an_opening_whose_answer_was_lost_is_the_same_attempt(stage: Stage) -> None:
    """P4. W1's opening is executed and its answer lost · sent again, it is the attempt that it opened: no lease is wasted."""
    (await stage.seam("w1")).lose_answer("open")
    await stage.worker("w1")
    task = await stage.submit(["say", "done"])
    await stage.settled(task.id)
    assert stage.view.ids(task.id) == ["0-1", "1-1", "1-2", "1-3"]
    assert len(stage.gates.contexts) == 1


@pytest.mark.guarantee("G4")
async def test_a_lost_claim_counter_lets_the_newer_claim_open(stage: Stage) -> None:
    """P2. W1 opens attempt 1 · the counter of claims is lost · W2 claims: its number is the server's time, not a count that
    begins again, so it opens attempt 2 and W1 is fenced."""
    w1, w2 = await stage.hand("w1"), await stage.hand("w2")
    task = await stage.submit(["say", "done"])
    first, _ = await stage.opened(w1, task.id)
    stage.outside.delete(arq_keys.retry(arq_keys.job_id(AGENT, task.id)))
    stage.lapse(task.id)
    second, attempt = await stage.opened(w2, task.id)
    assert attempt == 2
    assert second.claim > first.claim
    assert await w1.open_attempt(first, None) == Superseded()
    assert await w1.renew(AGENT, [first]) == [False]
    await finished_by_another(stage, task.id)


@pytest.mark.guarantee("G4")
async def test_a_release_that_arrives_late_frees_no_later_claim_of_the_same_worker(stage: Stage) -> None:
    """P3. W1 hands back, its release stays on its way · sent again, it frees the job · W1 claims the job once more · the first
    copy arrives: the lease names worker and claim, so the running attempt keeps it."""
    kept = (await stage.seam("w1")).keep("release")
    w1 = await stage.hand("w1")
    task = await stage.submit(["say", "done"])
    first, _ = await stage.opened(w1, task.id)
    assert await soon(w1.release(first))
    second, _ = await stage.opened(w1, task.id)
    assert await kept.arrive() == [b":0\r\n"]
    assert stage.view.lease(task.id) == second.value
    assert await w1.renew(AGENT, [second]) == [True]
    await finished_by_another(stage, task.id)


@pytest.mark.guarantee("G1")
async def test_a_claim_whose_answer_was_lost_costs_one_lease(stage: Stage) -> None:
    """P2. W1's claim is executed, its answer lost · the same claim wins nothing · once the lease has ended the job is claimed
    and runs once."""
    seam = await stage.seam("w1")
    task = await stage.submit(["say", "done"])
    lost = seam.lose_answer("claim", arq_keys.job_id(AGENT, task.id))
    await stage.worker("w1", lease_s=1)
    await lost.happened()
    final = await stage.settled(task.id)
    assert final["text"] == "done"
    assert stage.view.opening(task.id)["strikes"] == "1"
    assert len(stage.gates.contexts) == 1


@pytest.mark.guarantee("G5")
async def test_a_resumed_attempt_reads_again_what_a_stale_worker_opened(stage: Stage) -> None:
    """P4. W1 reads the text of attempt 1 to go on behind it · W2, with an older claim, opens attempt 2 and writes · W1 opens:
    what it read is stale, so it reads again and counts in attempt 2."""
    agent = stage.agent(on_retry="resume")
    seam = await stage.seam("w1")
    task, w2 = await half_written(stage, agent), await stage.hand("w2")
    stale = await stage.claimed(w2, task)
    stage.lapse(task)
    held = seam.hold("open", "1-2")  # the opening that names what was read
    await stage.worker("w1", agent)
    await held.happened()
    assert isinstance(await w2.open_attempt(stale, None, seen=EventId(1, 2), keep=3), Opened)
    stage.say(task, "2-2", "d")
    held.release()
    assert (await stage.settled(task))["text"] == "abcd[abcd]"
    assert stage.view.opening(task, 3)["resume_from"] == "4"


@pytest.mark.guarantee("G5")
async def test_a_late_chunk_of_the_attempt_that_was_read_is_cut_off(stage: Stage) -> None:
    """P4. W1 reads the text of attempt 1 · a chunk of attempt 1 arrives late · W1 opens attempt 2 with what it has read:
    readers cut the text there."""
    agent = stage.agent(on_retry="resume")
    seam = await stage.seam("w1")
    task = await half_written(stage, agent)
    held = seam.hold("open", "1-2")
    await stage.worker("w1", agent)
    await held.happened()
    stage.say(task, "1-3", "late")
    held.release()
    assert (await stage.settled(task))["text"] == "abc[abc]"
    assert stage.view.opening(task, 2)["resume_from"] == "3"
    assert stage.chunks(task, 1)[:3] + stage.chunks(task, 2) == "abc[abc]"


@pytest.mark.guarantee("G5", "G2")
async def test_a_closer_reads_again_where_a_stale_worker_opened(stage: Stage) -> None:
    """P8. The router reads a task past its deadline · a worker opens attempt 2 and writes · the router closes: what it read is
    stale, it reads again, and the final has the text of attempt 2."""
    held = (await stage.seam("r1")).hold("close")
    w1, w2 = await stage.hand("w1"), await stage.hand("w2")
    task = await stage.submit(["say", "done"], deadline=timedelta(hours=1))
    await stage.opened(w1, task.id)
    stage.say(task.id, "1-2", "abc")
    stage.lapse(task.id)
    stage.clock.ahead_ms = 2 * HOUR_MS
    await stage.router()
    await held.happened()
    assert (await stage.opened(w2, task.id))[1] == 2
    stage.say(task.id, "2-2", "xy")
    held.release()
    final = await stage.settled(task.id)
    assert (final["error"], final["text"]) == ("deadline_exceeded", "xy")
    assert stage.view.ids(task.id) == ["0-1", "1-1", "1-2", "2-1", "2-2", "3-1", "3-2"]
    assert stage.view.opening(task.id, 3)["resume_from"] == "2"


@pytest.mark.guarantee("G1", "G8")
async def test_a_job_whose_payload_ran_out_of_time_runs_from_the_stream(stage: Stage) -> None:
    """P1. The job's key ends before it is claimed · the worker finds no payload: the request is taken from 0-1."""
    task = await stage.submit(["say", "done"])
    stage.outside.delete(arq_keys.job(arq_keys.job_id(AGENT, task.id)))
    await stage.worker()
    assert (await stage.settled(task.id))["text"] == "done"


@pytest.mark.guarantee("G4")
async def test_a_stock_abort_makes_no_job_claimable_that_is_leased(stage: Stage) -> None:
    """P2. W1 runs a task · a stock client aborts it: arq takes the score of the lease for a delay and makes the job due · W2
    does not win it, since it has an owner; W1's next renewal puts the score right."""
    seam = await stage.seam("w1")
    await stage.worker("w1")
    task = await stage.submit(["reach", "running"], ["wait", "end"], ["say", "done"])
    await stage.gates.reached("running")
    held = seam.hold("renew")
    pool = await arq.create_pool(RedisSettings.from_dsn(stage.settings.redis_url), job_serializer=pack, job_deserializer=unpack)
    member = arq_keys.job_id(AGENT, task.id)
    try:
        job = Job(member, pool, arq_keys.queue(AGENT), _deserializer=unpack)
        with pytest.raises(asyncio.TimeoutError):
            await soon(job.abort(timeout=0.05, poll_delay=0.02))
    finally:
        await pool.aclose()
    assert stage.view.score(task.id) == 1
    w2 = await stage.hand("w2")
    assert (await w2.claim(AGENT, [task.id], 0)).won == []
    held.release()
    await until(lambda: (stage.view.score(task.id) or 0) > stage.view.now_ms())
    stage.gates.open("end")
    await stage.settled(task.id)
    assert stage.view.ids(task.id) == ["0-1", "1-1", "1-2", "1-3"]
    stage.outside.delete("arq:abort")


async def half_written(stage: Stage, agent: Agent) -> str:
    """A task whose first attempt wrote `abc` and whose worker is gone; it resumes."""
    stage.outside.hset(stage.keys.agents, AGENT, agent.card.model_dump_json())
    task = await stage.submit(["say_partial"])
    await stage.opened(await stage.hand("w0"), task.id)
    stage.say(task.id, "1-2", "abc")
    stage.lapse(task.id)
    return task.id


async def finished_by_another(stage: Stage, task_id: str) -> None:
    """The task comes to its end all the same."""
    stage.lapse(task_id)
    await stage.worker("last")
    await stage.settled(task_id)
