"""Each case of the reaper's rule that needs no fault but a worker that does not come back (rules P11, P14)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from skillstream_schemas import keys as arq_keys
from skillstream_worker.broker import Lease
from tests.client.bounds import until
from tests.support.verbs import AGENT

from .stage import Stage

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


async def left(stage: Stage, *, hand_back: str | None = None, attempts: int = 1, **options: object) -> tuple[str, Lease]:
    """A task whose last attempt of `attempts` wrote `so far`; its worker is gone, no other lives."""
    stage.outside.hset(stage.keys.agents, AGENT, stage.agent(**options).card.model_dump_json())
    w1 = await stage.hand("w1")
    task = await stage.submit(["say", "done"], deadline=timedelta(hours=1))
    for attempt in range(1, attempts + 1):
        lease, number = await stage.opened(w1, task.id)
        assert number == attempt
        stage.say(task.id, f"{attempt}-2", "so far")
        if hand_back is not None:
            stage.outside.xadd(
                stage.keys.events(task.id), {"type": "status", "handed_back": hand_back, "at": 1}, id=f"{attempt}-3"
            )
        stage.lapse(task.id)
    return task.id, lease


@pytest.mark.guarantee("G1")
@pytest.mark.parametrize("attempts", [1, 2])
async def test_a_task_out_of_attempts_ends_without_a_worker(stage: Stage, attempts: int) -> None:
    """P11, P14. The last attempt that a task may have is left and no worker lives · the router ends it as the next opener
    would, with the last worker's name and the text so far."""
    task, _ = await left(stage, attempts=attempts, max_attempts=attempts)
    await stage.router()
    final = await stage.settled(task)
    assert (final["state"], final["error"], final["text"]) == ("failed", "attempts_exhausted", "so far")
    assert final["reason"] == f"{attempts} attempts were made; the last worker was w1"
    assert stage.view.opening(task, attempts + 1)["strikes"] == str(attempts)


@pytest.mark.guarantee("G1")
async def test_a_task_that_is_never_run_twice_ends_without_a_worker(stage: Stage) -> None:
    """P14. The attempt of a skill that is never run twice is left and no worker lives · the router ends the task as
    interrupted."""
    task, _ = await left(stage, on_retry="fail")
    await stage.router()
    final = await stage.settled(task)
    assert (final["error"], final["text"]) == ("interrupted", "so far")
    assert "worker w1" in final["reason"]


@pytest.mark.guarantee("G1")
@pytest.mark.parametrize(
    ("case", "hand_back", "options"),
    [
        ("attempts left", None, {"max_attempts": 2}),
        ("to be retried", "retry", {"max_attempts": 2}),
        ("drained", "drain", {"max_attempts": 1}),
        ("another's skill", "elsewhere", {"max_attempts": 1}),
        ("another's skill, never run twice", "elsewhere", {"on_retry": "fail"}),
        ("still owned", None, {"max_attempts": 1}),
        ("canceled a moment ago", None, {"max_attempts": 1}),
    ],
)
async def test_a_task_that_may_go_on_is_left_alone(
    stage: Stage, case: str, hand_back: str | None, options: dict[str, Any]
) -> None:
    """P11, P14. An attempt was left, and another may follow; or was handed back by a drain or to a worker that has the
    skill, which is no strike; or its worker lives; or it is canceled and its time for that has not come: no remedy."""
    task, lease = await left(stage, hand_back=hand_back, **options)
    if case == "still owned":
        stage.outside.set(f"arq:in-progress:{{{AGENT}}}:{task}", lease.value, ex=60)
    if case == "canceled a moment ago":
        stage.outside.set(stage.keys.cancel(task), "enough", ex=60)
    beacon = await stage.submit(["say", "never"], deadline=timedelta(seconds=0.001))
    before = stage.view.entries(task)
    await stage.router()
    await stage.settled(beacon.id)
    await until(lambda: stage.ledger.state(task) == "working")
    assert stage.view.entries(task) == before
    stage.outside.delete(f"arq:in-progress:{{{AGENT}}}:{task}")
    stage.clock.ahead_ms = 2 * HOUR_MS
    await stage.settled(task)


@pytest.mark.guarantee("G1", "G5")
async def test_a_drain_is_no_strike(stage: Stage) -> None:
    """P11. The only attempt that a task may have is handed back by a drain · the next worker runs it, and its opening shows the
    same number of strikes: a deployment uses up no attempt."""
    task, _ = await left(stage, hand_back="drain", max_attempts=1)
    await stage.worker("w2")
    assert (await stage.settled(task))["text"] == "done"
    assert stage.view.opening(task, 2)["strikes"] == "1"


@pytest.mark.guarantee("G1", "G13")
async def test_a_job_that_is_claimed_and_never_opened_ends(stage: Stage) -> None:
    """P11. Workers claim a job and die before they open it: that is no attempt, but it does not go on for ever: beyond 20
    claims more than attempts the task is unstartable."""
    task = await stage.submit(["say", "done"])
    w1 = await stage.hand("w1")
    for _ in range(5 + 20):
        await stage.claimed(w1, task.id)
        stage.lapse(task.id)
    await stage.worker("w2")
    final = await stage.settled(task.id)
    assert (final["error"], final["reason"]) == ("unstartable", "the job was claimed 26 times")
    assert stage.gates.contexts == []


@pytest.mark.guarantee("G1", "G15")
async def test_a_task_whose_stream_would_go_ends_first(stage: Stage) -> None:
    """P12. A task waits for so long that its stream has less than an hour to go · it would vanish without a final: the router
    ends it as expired, with the text so far."""
    task, _ = await left(stage, max_attempts=5)
    stage.outside.pexpire(stage.keys.events(task), HOUR_MS - 1)
    await stage.router()
    final = await stage.settled(task)
    assert (final["error"], final["text"]) == ("expired", "so far")


@pytest.mark.guarantee("G1", "G15")
async def test_a_task_outlives_the_wait_for_its_next_attempt(stage: Stage) -> None:
    """P10, P12. An attempt is handed back, the next may start in six days · the stream is kept for seven from the opening on,
    and would be ended as expired a day after: stream and job are kept for six days more."""
    await stage.worker()
    task = await stage.submit(["retry", 6 * 86_400])
    await until(lambda: (stage.view.score(task.id) or 0) > stage.view.now_ms() + 5 * DAY_MS)
    job = arq_keys.job(arq_keys.job_id(AGENT, task.id))
    assert stage.outside.pttl(job) > 12 * DAY_MS
    assert stage.outside.pttl(stage.keys.events(task.id)) > 12 * DAY_MS
    await task.cancel()
