"""Two versions of one agent side by side: the card has the skills of both, and a job finds a worker that has its skill."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from skillstream import Client
from skillstream.task import Task
from skillstream_schemas import keys as arq_keys
from skillstream_schemas.card import AgentCard
from skillstream_schemas.settings import Settings
from skillstream_schemas.state import TaskState
from skillstream_worker import Agent, TaskContext
from skillstream_worker.broker import WorkerBroker
from tests.client.bounds import until
from tests.support.verbs import BOUND_S

from .conftest import StartWorker
from .view import View

AGENT = "versions"
LONG_MS = 600_000


def version(*skills: str, **options: Any) -> Agent:
    """A version of the agent; each skill says its name."""
    agent = Agent(AGENT, "In several versions")
    for name in skills:
        agent.skill(name, **options)(_say_name)
    return agent


async def _say_name(message: str, context: TaskContext) -> str:
    return context.skill_name


@pytest.fixture
async def announcer(settings: Settings) -> AsyncIterator[WorkerBroker]:
    """Another worker, which announces what it is told to and claims nothing."""
    broker = WorkerBroker(settings, "w-busy")
    await broker.open()
    yield broker
    await broker.close()


def card_of(view: View) -> dict[str, Any]:
    """The card as it stands on the broker."""
    return cast(dict[str, Any], json.loads(view.redis.hget(view.keys.agents, AGENT)))


def skills_of(view: View) -> list[str]:
    """Names of the skills on the card."""
    return sorted(skill["name"] for skill in card_of(view)["skills"])


async def _handed_back(view: View, task: Task) -> None:
    await until(lambda: "elsewhere" in view.shape(task.id))


@pytest.mark.fake
async def test_a_card_has_the_skills_of_all_live_workers(view: View, start_worker: StartWorker, client: Client) -> None:
    await start_worker(version("old", "both"), name="w1", announce_s=0.5)
    await start_worker(version("both", "new"), name="w2", announce_s=0.5)
    refreshed = card_of(view)["workers"]
    await until(lambda: all(card_of(view)["workers"].get(name, 0) > refreshed[name] for name in ("w1", "w2")))
    assert skills_of(view) == ["both", "new", "old"]
    card = (await client.agents())[AGENT]
    assert sorted(card.seen) == sorted(skill.name for skill in card.skills) == ["both", "new", "old"]
    assert sorted(card.workers) == ["w1", "w2"]


@pytest.mark.fake
async def test_what_others_announced_stays_as_it_was_word_for_word(view: View, announcer: WorkerBroker) -> None:
    """The script reads and writes it again: lists that are empty, null, long numbers, all of Unicode."""
    other = Agent(AGENT)
    other.skill("bare")(_say_name)
    other.skill(
        'Ü "quoted" \\ /\n🦶', "Größe\t\0", price_usd=12_345_678.901234, tags=["a", "ü"], examples=[""], timeout=0.1,
        max_attempts=7, on_retry="fail",
    )(_say_name)  # fmt: skip
    await announcer.announce(other.card, LONG_MS)
    announcer.worker = "w2"
    for _ in range(3):
        await announcer.announce(version("mine").card, LONG_MS)
    card = AgentCard.from_json(view.redis.hget(view.keys.agents, AGENT))
    mine, *others = card.skills
    assert mine.name == "mine"
    assert {skill.name: skill for skill in others} == {skill.name: skill for skill in other.card.skills}
    assert card.description == "In several versions"


@pytest.mark.fake
async def test_a_skill_that_nobody_announces_any_more_leaves_the_card(
    view: View, start_worker: StartWorker, announcer: WorkerBroker
) -> None:
    await announcer.announce(version("old").card, LONG_MS)
    await start_worker(version("new"), name="w1")
    assert skills_of(view) == ["new", "old"]
    await start_worker(version("new"), name="w2", announce_s=0.05)
    await until(lambda: skills_of(view) == ["new"])


@pytest.mark.fake
@pytest.mark.guarantee("G13")
@pytest.mark.parametrize(
    "garbage",
    [
        '"skills":5,"seen":5', '"skills":[5,null,{},{"name":5},["x"]],"seen":{"x":"now"}', '"skills":[{"name":"x"}],"seen":[]',
        '"skills":[{"name":"x"}]', '"skills":{"name":"x"},"seen":{"x":1}', '"skills":[{"name":"x"}],"seen":{"x":1e999}',
        '"skills":[{"name":"x","timeout_s":1e999}],"seen":{"x":9e14}', '"workers":{"w":1e999}', '"workers":[1e999]',
    ],
)  # fmt: skip
async def test_a_card_with_wrong_parts_is_mended(view: View, announcer: WorkerBroker, garbage: str) -> None:
    view.redis.hset(view.keys.agents, AGENT, f'{{"name":"{AGENT}","queue":"q",{garbage}}}')
    await announcer.announce(version("mine").card, LONG_MS)
    assert skills_of(view) == ["mine"]
    assert list(AgentCard.from_json(view.redis.hget(view.keys.agents, AGENT)).workers) == ["w-busy"]


@pytest.mark.guarantee("G13")
@pytest.mark.parametrize("on_retry", ["restart", "resume", "fail"])
async def test_a_job_is_handed_to_a_worker_that_has_its_skill(
    view: View, start_worker: StartWorker, client: Client, announcer: WorkerBroker, on_retry: str
) -> None:
    """Also one that is never run twice: it has not run."""
    await start_worker(version("old"), name="w-old")
    newer = version("old", "new", on_retry=on_retry, max_attempts=1)
    await announcer.announce(newer.card, LONG_MS)
    task = await client.submit(AGENT, "new", "x")
    await _handed_back(view, task)
    await start_worker(newer, name="w-new")
    final = await task.result(BOUND_S)
    assert (final.state, final.text) == (TaskState.COMPLETED, "new")
    assert view.shape(task.id) == ["submitted", "working", "elsewhere", "working", "final completed"]
    openings = [view.opening(task.id, attempt) for attempt in (1, 2)]
    assert [(opening["worker"], opening["strikes"]) for opening in openings] == [("w-old", "1"), ("w-new", "1")]
    await until(lambda: view.arq_keys_of(task.id, AGENT) == [])


@pytest.mark.guarantee("G13")
async def test_a_job_whose_skill_is_gone_ends(
    view: View, start_worker: StartWorker, client: Client, announcer: WorkerBroker
) -> None:
    """The worker that lacks it takes it once more when the card must have been renewed; later, where that came late."""
    await announcer.announce(version("new").card, LONG_MS)
    await start_worker(version("old"), announce_s=0.5)
    task = await client.submit(AGENT, "new", "x")
    final = await task.result(2 * BOUND_S)
    assert (final.state, final.error) == (TaskState.FAILED, "unknown_skill")
    shape = view.shape(task.id)
    looks = shape.count("elsewhere")
    assert 1 <= looks <= 3
    assert shape == ["submitted", *["working", "elsewhere"] * looks, "working", "final failed"]


@pytest.mark.guarantee("G13")
async def test_a_job_that_no_worker_takes_ends(
    view: View, start_worker: StartWorker, client: Client, announcer: WorkerBroker
) -> None:
    """The bound on claims (rule P11)."""
    await announcer.announce(version("new").card, LONG_MS)
    task = await client.submit(AGENT, "new", "x")
    view.redis.set(arq_keys.retry(arq_keys.job_id(AGENT, task.id)), 23, ex=600)
    await start_worker(version("old"), announce_s=60)
    final = await task.result(BOUND_S)
    assert (final.state, final.error) == (TaskState.FAILED, "unstartable")


async def test_jobs_of_another_version_do_not_hold_up_those_behind_them(
    view: View, start_worker: StartWorker, client: Client, announcer: WorkerBroker
) -> None:
    worker = await start_worker(version("old"), concurrency=1, announce_s=60)
    newer = version("new")
    await announcer.announce(newer.card, LONG_MS)
    others = [await client.submit(AGENT, "new", str(n)) for n in range(5)]
    for task in others:
        await _handed_back(view, task)
    mine = [await client.submit(AGENT, "old", str(n)) for n in range(5)]
    assert [(await task.result(BOUND_S)).text for task in mine] == ["old"] * 5
    view.redis.delete(view.keys.wake(AGENT))  # the queue itself is looked at, where the others stand first
    later = await client.submit(AGENT, "old", "x")
    assert (await later.result(BOUND_S)).text == "old"
    await until(lambda: "idle=True" in repr(worker._claimers[AGENT]))
    await start_worker(newer)
    assert [(await task.result(BOUND_S)).text for task in others] == ["new"] * 5
    assert all(view.shape(task.id).count("elsewhere") == 1 for task in others)
