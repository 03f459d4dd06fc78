"""How attempts begin and end: refusals, limits, time, settlement."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from skillstream import Client
from skillstream_schemas import keys as arq_keys
from skillstream_schemas.limits import Limits
from skillstream_schemas.settings import Settings
from skillstream_schemas.state import TaskState
from skillstream_worker import Agent, Worker
from tests.client.bounds import until
from tests.client.hand_worker import HandWorker
from tests.support.protocol_bench import refusals
from tests.support.verbs import AGENT, BOUND_S, Gates, verb_agent

from .conftest import Play, StartWorker
from .view import View

DAY_MS = 86_400_000
SMALL = Limits(event_bytes=1024, output_bytes=4096)


@pytest.mark.fake
@pytest.mark.guarantee("G1", "G15")
async def test_a_task_leaves_nothing_but_its_stream(play: Play, view: View, worker: Worker, settings: Settings) -> None:
    task = await play(["say", "a"], ["progress", "b"])
    await until(lambda: not view.queued())
    assert view.arq_keys_of(task.id) == []
    assert view.rings(task.id) == ["submitted", "opened", "final"]
    week_ms = settings.stream_ttl_s * 1000
    assert week_ms - 60_000 < view.redis.pttl(task.stream) <= week_ms
    assert view.redis.pttl(settings.keys.wake(AGENT)) in range(-2, 3_600_001)
    assert [key for key in view.redis.scan_iter("*") if view.redis.ttl(key) == -1 and "task" in key] == []


async def test_an_opening_names_worker_and_claim(begin: Play, view: View, worker: Worker, gates: Gates) -> None:
    task = await begin(["reach", "running"], ["wait", "end"])
    await gates.reached("running")
    opening = view.opening(task.id)
    assert (opening["worker"], opening["strikes"]) == ("w1", "1")
    assert "resume_from" not in opening
    assert view.lease(task.id) == f"w1:{opening['claim']}"
    score = view.score(task.id)
    assert score is not None
    assert score > view.now_ms()  # hidden from stock workers
    assert view.redis.pttl(arq_keys.job(arq_keys.job_id(AGENT, task.id))) > 6 * DAY_MS
    gates.open("end")
    await task.result(BOUND_S)


async def test_a_running_task_keeps_its_lease_beyond_the_lease(
    begin: Play, view: View, start_worker: StartWorker, agent: Agent, gates: Gates
) -> None:
    await start_worker(agent, lease_s=1)
    task = await begin(["reach", "running"], ["wait", "end"])
    await gates.reached("running")
    first = view.score(task.id)
    assert first is not None
    await until(lambda: (view.score(task.id) or 0) > first + 1000)
    assert view.lease(task.id)
    gates.open("end")
    await task.result(BOUND_S)
    assert view.ids(task.id) == ["0-1", "1-1", "1-2"]


@pytest.mark.fake
async def test_a_task_submitted_before_any_worker_is_run_later(
    begin: Play, view: View, agent: Agent, hand: HandWorker, start_worker: StartWorker
) -> None:
    hand.announce(*agent.card.skills, agent=AGENT)
    tasks = [await begin(["say", str(n)]) for n in range(5)]
    assert [view.shape(task.id) for task in tasks] == [["submitted"]] * 5
    await start_worker(agent)
    finals = await asyncio.gather(*(task.result(BOUND_S) for task in tasks))
    assert [final.text for final in finals] == ["0", "1", "2", "3", "4"]


async def test_a_delayed_task_runs_not_before_its_time(begin: Play, view: View, worker: Worker) -> None:
    task = await begin(["say", "late"], delay=0.5)
    await task.result(BOUND_S)
    submitted_ms, opened_ms = (int(fields["at"]) for _, fields in view.entries(task.id)[:2])
    assert opened_ms - submitted_ms >= 499
    assert view.redis.pttl(task.stream) <= 7 * DAY_MS + 500


async def test_concurrency_holds(begin: Play, view: View, start_worker: StartWorker, agent: Agent, gates: Gates) -> None:
    worker = await start_worker(agent, concurrency=2)
    tasks = [await begin(["wait", "end"]) for _ in range(5)]
    await until(lambda: len(gates.contexts) == 2)
    assert len(worker.running) == 2
    gates.open("end")
    finals = await asyncio.gather(*(task.result(BOUND_S) for task in tasks))
    assert {final.state for final in finals} == {TaskState.COMPLETED}


@pytest.mark.fake
@pytest.mark.guarantee("G13")
async def test_an_unknown_skill_ends_with_the_names_of_the_known(
    view: View, worker: Worker, hand: HandWorker, client: Client, agent: Agent
) -> None:
    hand.announce(*(card.model_copy(update={"name": "gone"}) for card in agent.card.skills[:1]), agent=AGENT)
    task = await client.submit(AGENT, "gone", "x")
    await task.result(BOUND_S)
    final = view.final(task.id)
    assert (final["state"], final["error"]) == ("failed", "unknown_skill")
    assert final["reason"] == "agent 'verbs' has no skill 'gone'; its skills: plain, stream"


@pytest.mark.fake
@pytest.mark.guarantee("G14")
async def test_output_beyond_the_limit_keeps_what_was_said(
    play: Play, view: View, start_worker: StartWorker, agent: Agent, gates: Gates
) -> None:
    await start_worker(agent, limits=SMALL)
    task = await play(["say", "ä" * 1000], ["say", "ö" * 1048], ["say", "!"], ["reach", "went on"])
    final = view.final(task.id)
    assert (final["state"], final["error"]) == ("failed", "output_too_large")
    assert final["text"] == "ä" * 1000 + "ö" * 1048
    assert "".join(view.texts(task.id)) == final["text"]
    assert all(len(text.encode()) <= SMALL.event_bytes for text in view.texts(task.id))
    assert gates.closed == [1]


@pytest.mark.fake
@pytest.mark.guarantee("G14")
@pytest.mark.parametrize("field", ["text", "metadata"])
async def test_a_returned_response_beyond_the_limit_fails(
    play: Play, view: View, start_worker: StartWorker, agent: Agent, field: str
) -> None:
    await start_worker(agent, limits=SMALL)
    large = {"text": "x" * 5000} if field == "text" else {"metadata": {"x": "y" * 5000}}
    task = await play(["respond", large], skill="plain")
    final = view.final(task.id)
    assert (final["state"], final["error"], final["text"]) == ("failed", "output_too_large", "")
    assert final["reason"] == f"the {field} of the final is over 4096 bytes"


@pytest.mark.fake
@pytest.mark.guarantee("G14")
@pytest.mark.parametrize(
    "verb",
    [["progress", "x" * 1024], ["status", "x" * 1024], ["status", "s", 0.5, {"x": "y" * 1024}], ["snapshot", {"x": "y" * 1024}]],
)
async def test_an_event_beyond_the_limit_keeps_what_was_said(
    play: Play, view: View, start_worker: StartWorker, agent: Agent, verb: list[object]
) -> None:
    await start_worker(agent, limits=SMALL)
    task = await play(["say", "before"], verb, ["say", "after"])
    final = view.final(task.id)
    assert (final["state"], final["error"], final["text"]) == ("failed", "event_too_large", "before")


async def test_a_skill_has_its_time(play: Play, view: View, start_worker: StartWorker, gates: Gates) -> None:
    await start_worker(verb_agent(gates, timeout=0.5))
    task = await play(["say", "partial"], ["wait", "never"])
    final = view.final(task.id)
    assert (final["state"], final["error"], final["text"]) == ("failed", "timeout", "partial")
    assert final["reason"] == "the skill ran longer than 0.5 s"
    assert gates.endings == ["CancelledError"]


async def test_a_skill_that_swallows_its_timeout_has_timed_out(
    play: Play, view: View, start_worker: StartWorker, gates: Gates
) -> None:
    await start_worker(verb_agent(gates, timeout=0.5))
    task = await play(
        ["say", "partial"], ["swallow_cancel", "never"], ["say", " more"], ["respond", {"status": "input-required"}]
    )
    final = view.final(task.id)
    assert (final["state"], final["error"]) == ("failed", "timeout")
    assert gates.closed == [1]


async def test_a_timeout_of_the_skills_own_is_its_error(play: Play, view: View, start_worker: StartWorker, gates: Gates) -> None:
    await start_worker(verb_agent(gates, timeout=60))
    task = await play(["raise", "TimeoutError", "upstream"])
    assert (view.final(task.id)["error"], view.final(task.id)["reason"]) == ("skill_error", "TimeoutError: upstream")


async def test_a_deadline_that_passed_before_the_start(
    begin: Play, view: View, agent: Agent, hand: HandWorker, gates: Gates, start_worker: StartWorker
) -> None:
    hand.announce(*agent.card.skills, agent=AGENT)
    task = await begin(["say", "x"], deadline=timedelta(seconds=0))
    await start_worker(agent)
    await task.result(BOUND_S)
    final = view.final(task.id)
    assert (final["state"], final["error"], final["text"]) == ("failed", "deadline_exceeded", "")
    assert gates.contexts == []


async def test_a_deadline_that_passes_while_the_skill_runs(play: Play, view: View, worker: Worker, gates: Gates) -> None:
    task = await play(["say", "partial"], ["wait", "never"], deadline=timedelta(seconds=1.5))
    final = view.final(task.id)
    assert (final["state"], final["error"], final["text"]) == ("failed", "deadline_exceeded", "partial")
    assert gates.contexts[0].deadline is not None
    assert int(gates.contexts[0].deadline.timestamp() * 1000) <= int(final["at"])


async def test_the_nearer_of_timeout_and_deadline_counts(play: Play, view: View, start_worker: StartWorker, gates: Gates) -> None:
    await start_worker(verb_agent(gates, timeout=0.5))
    task = await play(["wait", "never"], deadline=timedelta(seconds=60))
    assert view.final(task.id)["error"] == "timeout"


@pytest.mark.fake
async def test_a_skill_that_cancels_itself_has_failed(play: Play, view: View, worker: Worker, gates: Gates) -> None:
    task = await play(["say", "partial"], ["raise", "CancelledError"])
    final = view.final(task.id)
    assert (final["state"], final["error"], final["text"]) == ("failed", "skill_error", "partial")
    assert final["reason"].startswith("CancelledError: ")
    assert (await play(["say", "next"])).id != task.id


@pytest.mark.guarantee("G8")
async def test_a_job_stays_on_the_queue_while_its_final_cannot_be_written(
    begin: Play, view: View, worker: Worker, gates: Gates
) -> None:
    task = await begin(["reach", "running"], ["wait", "end"])
    await gates.reached("running")
    refused = refusals(view.redis, "OOM")
    view.redis.config_set("maxmemory", 1)  # scripts that only delete still run: a settlement would
    try:
        gates.open("end")
        await until(lambda: refusals(view.redis, "OOM") > refused + 1)
        assert view.shape(task.id) == ["submitted", "working"]
        assert view.queued() == [arq_keys.job_id(AGENT, task.id)]
        assert len(view.arq_keys_of(task.id)) == 3
    finally:
        view.redis.config_set("maxmemory", 0)
    assert (await task.result(BOUND_S)).state is TaskState.COMPLETED
    await until(lambda: not view.queued())


@pytest.mark.guarantee("G8")
async def test_a_job_whose_final_stands_already_is_settled_and_not_run(
    begin: Play, view: View, agent: Agent, hand: HandWorker, gates: Gates, start_worker: StartWorker
) -> None:
    hand.announce(*agent.card.skills, agent=AGENT)
    task = await begin(["say", "never"])
    hand.open(task.id)
    hand.add(task.id, "1-2", type="final", state="completed", text="theirs", metadata="{}", chunks=0)
    await start_worker(agent)
    await until(lambda: not view.queued())
    assert view.ids(task.id) == ["0-1", "1-1", "1-2"]
    assert gates.contexts == []


@pytest.mark.guarantee("G4")
async def test_an_attempt_that_is_overtaken_adds_and_settles_nothing(
    begin: Play, view: View, worker: Worker, hand: HandWorker, gates: Gates
) -> None:
    task = await begin(["say", "mine"], ["reach", "running"], ["wait", "end"], ["say", " late"])
    await gates.reached("running")
    await until(lambda: view.texts(task.id) == ["mine"])
    hand.open(task.id, 2, claim=int(view.opening(task.id)["claim"]) + 1)
    gates.open("end")
    await until(lambda: not worker.running)
    assert view.ids(task.id) == ["0-1", "1-1", "1-2", "2-1"]
    assert view.queued() == [arq_keys.job_id(AGENT, task.id)]
    hand.add(task.id, "2-2", type="final", state="completed", text="", metadata="{}", chunks=0)
    await until(lambda: not view.queued())


@pytest.mark.guarantee("G4")
async def test_a_lease_that_another_holds_ends_the_attempt(
    begin: Play, view: View, worker: Worker, hand: HandWorker, gates: Gates
) -> None:
    task = await begin(["reach", "running"], ["wait", "never"])
    await gates.reached("running")
    member = arq_keys.job_id(AGENT, task.id)
    view.redis.set(arq_keys.in_progress(member), "w2:9", px=60_000)
    await until(lambda: not worker.running)
    assert gates.endings == ["CancelledError"]
    assert view.shape(task.id) == ["submitted", "working"]
    assert view.lease(task.id) == "w2:9"
    hand.settle(task.id, AGENT)
    view.redis.delete(arq_keys.retry(member))


async def test_a_worker_and_its_attempts_can_be_printed(begin: Play, worker: Worker, gates: Gates) -> None:
    task = await begin(["reach", "running"], ["wait", "end"])
    await gates.reached("running")
    assert repr(worker) == "<Worker w1 agents=['verbs'] running=1 strays=0 <Slots 1/100>>"
    assert task.id in repr(worker.running[task.id])
    gates.open("end")
    await task.result(BOUND_S)
