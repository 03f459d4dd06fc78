"""Many orders at once: what stands on the broker, what it costs, what is refused, what outlives a cut connection."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import redis

from skillstream import Client, NotAllSubmitted, Order, SyncClient
from skillstream_schemas import keys as arq_keys
from skillstream_schemas.card import SkillCard
from skillstream_schemas.errors import (
    BrokerUnavailable,
    InvalidName,
    InvalidRequest,
    MalformedEntry,
    MessageTooLarge,
    NotReplicated,
    TaskIdTaken,
    UnknownAgent,
    UnknownSkill,
)
from skillstream_schemas.settings import Settings
from tests.conftest import make_settings
from tests.support.cutting_proxy import CuttingProxy
from tests.support.redis_server import RedisServer

from .bounds import soon
from .hand_worker import AGENT, HandWorker

fake = pytest.mark.fake


def streams(outside: redis.Redis) -> list[str]:
    """Keys of all task streams."""
    return [key for key in outside.scan_iter() if key.endswith(":events")]


def orders(count: int) -> list[Order]:
    """Orders with ids `t0`, `t1`, …"""
    return [Order(AGENT, "say", f"hi {number}", task_id=f"t{number}", context_id="c") for number in range(count)]


@pytest.fixture
async def wire(settings: Settings, outside: redis.Redis) -> AsyncIterator[CuttingProxy]:
    """A wire to the broker that may be cut."""
    port = outside.connection_pool.connection_kwargs["port"]
    async with CuttingProxy(port) as proxy:
        yield proxy


@fake
@pytest.mark.guarantee("G6")
async def test_each_order_is_a_task_and_their_handles_come_in_order(
    client: Client, hand: HandWorker, outside: redis.Redis
) -> None:
    hand.announce(SkillCard(name="say"), SkillCard(name="sing"))
    hand.announce(agent="other")
    wanted = [Order(AGENT, "say", "a"), Order("other", "say", "b", payer="acme"), Order(AGENT, "sing", "c", metadata={"n": 1})]
    tasks = await soon(client.submit_many(iter(wanted)))
    assert [hand.entries(task.id)[0][1]["message"] for task in tasks] == ["a", "b", "c"]
    assert [hand.entries(task.id)[0][1].get("payer") for task in tasks] == [None, "acme", None]
    assert set(hand.queued()) == {arq_keys.job_id(AGENT, tasks[place].id) for place in (0, 2)}
    assert outside.zscore(arq_keys.queue("other"), arq_keys.job_id("other", tasks[1].id)) is not None
    assert len(streams(outside)) == 3
    outside.delete(arq_keys.queue("other"))


@fake
async def test_no_orders_are_no_tasks(client: Client, outside: redis.Redis) -> None:
    assert await soon(client.submit_many([])) == []
    assert streams(outside) == []


async def test_a_thousand_cost_a_few_commands(client: Client, hand: HandWorker, outside: redis.Redis) -> None:
    await soon(client.submit(AGENT, "say", "hi"))
    outside.config_resetstat()
    tasks = await soon(client.submit_many(orders(1000)))
    calls: Any = outside.info("commandstats")
    assert calls["cmdstat_evalsha"]["calls"] < 500  # 16 shards, 48 tasks a batch
    assert len(hand.queued()) == 1001
    assert [task.id for task in tasks] == [f"t{number}" for number in range(1000)]


@fake
async def test_a_delay_is_each_order_s_own(client: Client, hand: HandWorker) -> None:
    first, second = await soon(client.submit_many([Order(AGENT, "say", "a"), Order(AGENT, "say", "b", delay=3600)]))
    queued = hand.queued()
    later_ms = queued[arq_keys.job_id(AGENT, second.id)] - queued[arq_keys.job_id(AGENT, first.id)]
    assert later_ms == pytest.approx(3_600_000, abs=10_000)


@fake
@pytest.mark.parametrize(
    ("bad", "error"),
    [
        ({"agent": "nobody"}, UnknownAgent), ({"skill": "sing"}, UnknownSkill), ({"message": "x" * 1_048_577}, MessageTooLarge),
        ({"task_id": "a b"}, InvalidName), ({"payer": ""}, InvalidRequest), ({"delay": -1}, InvalidRequest),
        ({"task_id": 5}, InvalidName), ({"agent": None}, InvalidName), ({"delay": "5"}, InvalidRequest),
        ({"deadline": 1e9}, InvalidRequest), ({"metadata": [1]}, InvalidRequest), ({"metadata": "n"}, InvalidRequest),
    ],
)  # fmt: skip
async def test_an_order_that_cannot_be_taken_is_named_before_any_is_sent(
    client: Client, hand: HandWorker, outside: redis.Redis, bad: dict[str, Any], error: type[Exception]
) -> None:
    wanted = [Order(AGENT, "say", "a"), Order(AGENT, "say", "b")._replace(**bad), Order(AGENT, "say", "c")]
    with pytest.raises(error, match=r"order 1: "):
        await soon(client.submit_many(wanted))
    assert streams(outside) == []
    assert hand.queued() == {}


@fake
@pytest.mark.guarantee("G6")
async def test_the_same_orders_again_run_nothing_twice_and_repair(client: Client, hand: HandWorker, outside: redis.Redis) -> None:
    hand.submit("t1")  # another client died between its two steps
    hand.submit("t2")
    hand.run("t2", "done")
    wanted = [Order(AGENT, "say", "hi", task_id=f"t{number}") for number in range(4)]
    before = hand.entries("t2")
    for _ in range(2):
        assert [task.id for task in await soon(client.submit_many(wanted))] == ["t0", "t1", "t2", "t3"]
        assert set(hand.queued()) == {arq_keys.job_id(AGENT, task_id) for task_id in ("t0", "t1", "t3")}
    assert hand.entries("t2") == before
    assert all(len(hand.entries(task_id)) == 1 for task_id in ("t0", "t1", "t3"))


async def test_scripts_that_the_server_forgot_are_loaded_for_both_steps(
    client: Client, hand: HandWorker, outside: redis.Redis
) -> None:
    await client.agents()
    outside.script_flush()
    await soon(client.submit(AGENT, "say", "hi", task_id="alone"))
    outside.script_flush()
    await soon(client.submit_many(orders(30)))
    assert len(hand.queued()) == 31


@fake
@pytest.mark.guarantee("G6")
async def test_the_same_id_twice_among_them_is_one_task(client: Client, hand: HandWorker) -> None:
    first, second = await soon(client.submit_many([Order(AGENT, "say", "hi", task_id="t1")] * 2))
    assert first.id == second.id == "t1"
    assert len(hand.entries("t1")) == len(hand.queued()) == 1


@fake
@pytest.mark.guarantee("G6")
async def test_what_the_broker_did_not_take_is_told_by_place_and_the_rest_is_queued(client: Client, hand: HandWorker) -> None:
    await soon(client.submit(AGENT, "say", "another", task_id="t1"))
    with pytest.raises(NotAllSubmitted, match=r"1 of 3 tasks.*at 1: task_id_taken") as raised:
        await soon(client.submit_many(orders(3)))
    assert raised.value.task_ids == ("t0", "t1", "t2")
    assert [(place, type(error)) for place, error in raised.value.errors.items()] == [(1, TaskIdTaken)]
    assert len(hand.queued()) == 3
    assert hand.entries("t1")[0][1]["message"] == "another"


@fake
@pytest.mark.guarantee("G13")
async def test_a_stream_of_someone_else_under_an_id_is_told_by_place_too(
    client: Client, hand: HandWorker, outside: redis.Redis
) -> None:
    hand.add("t1", "0-1", type="status", state="submitted", v=9)
    with pytest.raises(NotAllSubmitted, match=r"1 of 3 tasks.*at 1: malformed_entry") as raised:
        await soon(client.submit_many(orders(3)))
    assert [(place, type(error)) for place, error in raised.value.errors.items()] == [(1, MalformedEntry)]
    assert set(hand.queued()) == {arq_keys.job_id(AGENT, task_id) for task_id in ("t0", "t2")}


async def test_others_need_not_wait_for_all_of_many(client: Client, hand: HandWorker) -> None:
    await soon(client.submit(AGENT, "say", "reads the cards"))
    many = asyncio.create_task(client.submit_many(orders(8000)))
    turns = 0
    while len(hand.queued()) < 2:  # begun
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 8000 // 500, "others had turns while all were checked"
    await soon(client.submit(AGENT, "say", "alone"))
    assert not many.done()
    await soon(many)
    assert len(hand.queued()) == 8002


async def test_without_replica_durable_says_so_and_all_are_queued(client: Client, hand: HandWorker) -> None:
    with pytest.raises(NotReplicated):
        await soon(client.submit_many(orders(3), durable=True))
    assert len(hand.queued()) == 3


@pytest.mark.guarantee("G6")
@pytest.mark.parametrize("direction", ["cut_up_after", "cut_down_after"])
async def test_a_cut_at_any_place_loses_nothing_and_doubles_nothing(
    settings: Settings, hand: HandWorker, outside: redis.Redis, wire: CuttingProxy, direction: str
) -> None:
    async with Client(settings=settings.changed(redis_url=wire.url)) as client:
        await client.agents()
        await soon(client.submit(AGENT, "say", "first", task_id="first"))
        span = 6_000 if direction == "cut_up_after" else 300
        for place in range(10):
            before, drops = len(hand.queued()), wire.drops
            setattr(wire, direction, place * span // 10)
            wanted = [order._replace(task_id=f"{place}-{order.task_id}") for order in orders(20)]
            await soon(client.submit_many(wanted))
            assert len(hand.queued()) == before + 20
            assert all(len(hand.entries(str(order.task_id))) == 1 for order in wanted)
            assert wire.drops == drops + 1, "the connection was cut"


@pytest.mark.guarantee("G6")
@pytest.mark.parametrize("direction", ["cut_up_after", "cut_down_after"])
async def test_a_single_one_outlives_a_cut_between_its_two_steps(
    settings: Settings, hand: HandWorker, wire: CuttingProxy, direction: str
) -> None:
    async with Client(settings=settings.changed(redis_url=wire.url)) as client:
        await soon(client.submit(AGENT, "say", "first", task_id="first"))
        for place in range(60 if direction == "cut_up_after" else 20):
            setattr(wire, direction, place * 12 if direction == "cut_up_after" else place)
            await soon(client.submit(AGENT, "say", "hi", task_id=f"t{place}"))
            assert arq_keys.job_id(AGENT, f"t{place}") in hand.queued()
            assert len(hand.entries(f"t{place}")) == 1
            assert hand.rings(f"t{place}") == ["submitted"]


async def test_a_broker_that_is_gone_is_told_for_all(settings: Settings, hand: HandWorker, outside: redis.Redis) -> None:
    async with CuttingProxy(outside.connection_pool.connection_kwargs["port"]) as wire:
        client = await Client(settings=settings.changed(redis_url=wire.url, patience_s=0.2)).open()
        await soon(client.submit(AGENT, "say", "first"))
    with pytest.raises(NotAllSubmitted) as raised:
        await soon(client.submit_many(orders(5)))
    assert {type(error) for error in raised.value.errors.values()} == {BrokerUnavailable}
    assert list(raised.value.errors) == [0, 1, 2, 3, 4]
    await client.close()


async def test_patience_is_not_had_again_for_each_portion(own_server: RedisServer) -> None:
    settings = make_settings(own_server.url, patience_s=2, answer_timeout_s=0.5)
    async with Client(settings=settings) as client:
        with own_server.client() as outside:
            HandWorker(outside, settings).announce()
        await soon(client.submit(AGENT, "say", "first"))
        own_server.stop()
        since_s = time.monotonic()
        with pytest.raises(NotAllSubmitted) as raised:
            await soon(client.submit_many(orders(9000)))
        assert time.monotonic() - since_s < 3.8, "once, and what so many take to be checked and told"
        assert list(raised.value.errors) == list(range(9000))


@fake
def test_code_without_asyncio_has_it_too(settings: Settings, hand: HandWorker) -> None:
    with SyncClient(settings=settings) as client:
        tasks = client.submit_many(orders(3))
        assert [task.id for task in tasks] == ["t0", "t1", "t2"]
        hand.run("t1", "done")
        assert tasks[1].result(timeout=10).text == "done"
