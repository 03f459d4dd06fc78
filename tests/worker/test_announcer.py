"""What clients and operators can see of agents and workers."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from skillstream import Client
from skillstream_schemas.settings import Settings
from skillstream_worker import Agent, Worker
from tests.client.bounds import soon, until
from tests.support.verbs import AGENT, Gates, verb_agent

from .conftest import StartWorker
from .view import View

pytestmark = pytest.mark.fake


def card_of(view: View, agent: str = AGENT) -> dict[str, Any]:
    """The card as it stands on the broker."""
    return cast(dict[str, Any], json.loads(view.redis.hget(view.keys.agents, agent)))


async def test_the_card_stands_before_anything_is_claimed(view: View, settings: Settings, gates: Gates) -> None:
    agent = verb_agent(gates, price_usd="0.05", tags=["a"], examples=["ü"], timeout=60, max_attempts=5, on_retry="resume")
    worker = Worker([agent], settings, name="w1")
    await worker.start()
    card = card_of(view)
    await soon(worker.stop())
    assert (card["name"], card["description"], card["queue"]) == (AGENT, "Does what its message says", "arq:queue:{verbs}")
    assert card["skills"][0] == {
        "name": "stream", "description": "Yields what the verbs make", "price_micros": 50_000, "tags": ["a"], "examples": ["ü"],
        "streaming": True, "timeout_s": 60.0, "max_attempts": 5, "on_retry": "resume",
    }  # fmt: skip
    assert card["skills"][1]["streaming"] is False
    assert list(card["workers"]) == ["w1"]


async def test_all_workers_of_an_agent_are_seen(view: View, agent: Agent, start_worker: StartWorker, client: Client) -> None:
    await start_worker(agent, name="w1")
    await start_worker(agent, name='w2 "quoted"')
    assert sorted(card_of(view)["workers"]) == ["w1", 'w2 "quoted"']
    assert sorted((await client.agents())[AGENT].workers) == ["w1", 'w2 "quoted"']


async def test_a_worker_that_stops_leaves_the_card(
    view: View, settings: Settings, agent: Agent, start_worker: StartWorker
) -> None:
    await start_worker(agent, name="w1")
    leaving = Worker([agent], settings, name="w2")
    await leaving.start()
    before = card_of(view)
    assert sorted(before["workers"]) == ["w1", "w2"]
    await soon(leaving.stop())
    assert list(card_of(view)["workers"]) == ["w1"]
    assert card_of(view)["skills"] == before["skills"]


async def test_a_worker_that_stops_makes_no_card(view: View, settings: Settings, agent: Agent) -> None:
    leaving = Worker([agent], settings, name="w1")
    await leaving.start()
    view.redis.delete(view.keys.agents)
    await soon(leaving.stop())
    assert not view.redis.exists(view.keys.agents)


async def test_agents_of_one_worker_have_cards_of_their_own(view: View, gates: Gates, start_worker: StartWorker) -> None:
    await start_worker(verb_agent(gates, "one"), verb_agent(gates, "two"))
    assert [card_of(view, name)["queue"] for name in ("one", "two")] == ["arq:queue:{one}", "arq:queue:{two}"]


async def test_cards_are_refreshed(view: View, agent: Agent, start_worker: StartWorker) -> None:
    await start_worker(agent, name="w1", announce_s=0.05)
    first = card_of(view)["workers"]["w1"]
    await until(lambda: card_of(view)["workers"]["w1"] > first)


async def test_a_card_that_was_lost_comes_back(view: View, agent: Agent, start_worker: StartWorker) -> None:
    await start_worker(agent, name="w1", announce_s=0.05)
    view.redis.delete(view.keys.agents)
    await until(lambda: bool(view.redis.exists(view.keys.agents)))
    assert list(card_of(view)["workers"]) == ["w1"]


async def test_a_silent_worker_is_forgotten(view: View, agent: Agent, start_worker: StartWorker) -> None:
    silent = await start_worker(agent, name="silent")
    silent._announcer = None  # killed: it says no word at its end
    await soon(silent.stop())
    assert list(card_of(view)["workers"]) == ["silent"]
    await start_worker(agent, name="w1", announce_s=0.05)
    await until(lambda: list(card_of(view)["workers"]) == ["w1"])


async def test_a_card_outlives_its_workers(view: View, agent: Agent, start_worker: StartWorker, client: Client) -> None:
    worker = await start_worker(agent)
    await soon(worker.stop())
    task = await client.submit(AGENT, "stream", "[]")
    await task.cancel()
    assert view.redis.ttl(view.keys.agents) == -1


@pytest.mark.guarantee("G13")
@pytest.mark.parametrize("garbage", ["no JSON", '{"workers":[1]}', '{"workers":{"w0":"x"}}', b"\xff", "[]", "null"])
async def test_a_card_that_cannot_be_read_is_replaced(
    view: View, agent: Agent, start_worker: StartWorker, garbage: str | bytes
) -> None:
    view.redis.hset(view.keys.agents, AGENT, garbage)
    await start_worker(agent, name="w1")
    assert list(card_of(view)["workers"]) == ["w1"]


async def test_a_changed_card_replaces_the_old_one(view: View, gates: Gates, start_worker: StartWorker) -> None:
    await start_worker(verb_agent(gates), name="w1")
    await start_worker(verb_agent(gates, price_usd=1), name="w2")
    card = card_of(view)
    assert card["skills"][0]["price_micros"] == 1_000_000
    assert sorted(card["workers"]) == ["w1", "w2"]
