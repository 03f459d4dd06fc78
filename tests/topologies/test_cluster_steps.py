"""Single steps on a cluster: what is sent where, while slots move and nodes are away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

import pytest

from skillstream import Client
from skillstream.cluster import Cluster
from skillstream_router.broker import RouterBroker
from skillstream_schemas.errors import BrokerRefused, BrokerUnavailable, InvalidSettings, NotReplicated, Unpublishable
from skillstream_schemas.ids import SUBMISSION
from skillstream_schemas.settings import Settings
from skillstream_worker import Agent, Worker, arq_settings
from skillstream_worker.answers import Loss
from skillstream_worker.broker import WakeLine, WorkerBroker
from tests.client.bounds import collected, soon, until
from tests.client.hand_worker import HandWorker
from tests.client.reading import places
from tests.conftest import make_settings
from tests.support.protocol_bench import AGENT, ProtocolBench, a_request, is_dense, staged
from tests.support.redis_server import RedisServer, free_port, valkey_binary
from tests.support.submissions import submission_of
from tests.topologies.cluster import ValkeyCluster

pytestmark = pytest.mark.timeout(60)
Move = Callable[[str], None]


@pytest.fixture(params=["key by key", "at once"])
def move(request: pytest.FixtureRequest, cluster: ValkeyCluster) -> Move:
    """Moves the slot of a key to another node."""
    return cluster.move if request.param == "key by key" else cluster.move_at_once


@pytest.fixture
async def bench(cluster_outside: Any, cluster_settings: Settings) -> AsyncIterator[ProtocolBench]:
    """The protocol's steps on the cluster."""
    async with ProtocolBench(cluster_outside, cluster_settings) as steps:
        yield steps


async def test_answers_come_in_the_order_of_their_commands(bench: ProtocolBench, cluster: ValkeyCluster) -> None:
    keys = [f"key{number}" for number in range(50)]
    assert len({cluster.owner(key).port for key in keys}) == 3
    for key in keys:
        bench.outside.set(key, f"value of {key}", px=60_000)
    broker = await bench.broker()
    commands = [command for key in keys for command in (("GET", key), ("INCR", key), ("STRLEN", key))]
    replies = await soon(broker.pipeline.batch(commands, "read all"))
    assert replies[::3] == [f"value of {key}".encode() for key in keys]
    assert all("not an integer" in str(reply) for reply in replies[1::3])
    assert replies[2::3] == [len(f"value of {key}") for key in keys]


async def test_half_a_slot_is_read_where_each_key_is(bench: ProtocolBench, cluster: ValkeyCluster) -> None:
    shard = [task for task in (f"t{number}" for number in range(40)) if bench.keys.shard(task) == 1]
    await bench.submitted(*shard)
    key = bench.keys.events(shard[0])
    target = cluster.another(cluster.owner(key))
    source = cluster.begin_move(key, target)
    cluster.move_keys(key, source, target, but=len(shard) // 2)
    broker = await RouterBroker(bench.settings, "r1").open()
    try:
        assert len(await soon(asyncio.gather(*(broker.read(task, SUBMISSION) for task in shard)))) == len(shard)
        found = await soon(broker.fetch(shard))
        assert [ends.first is not None for ends in found] == [True] * len(shard)
        # a script needs all its keys in one place: it waits until they are
        late = asyncio.create_task(broker.request_cancel(shard[0], "late"))
        await until(lambda: "TRYAGAIN" in (source.errors() | target.errors()))
        assert not late.done()
        cluster.move_keys(key, source, target)
        cluster.end_move(key, source, target)
        await soon(late)
    finally:
        await broker.close()
    assert bench.outside.get(bench.keys.cancel(shard[0])) == "late"


async def test_a_node_that_sends_elsewhere_is_believed(
    bench: ProtocolBench, cluster: ValkeyCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.submitted("t1")
    broker = await bench.broker()
    await asyncio.to_thread(cluster.move, bench.keys.events("t1"))

    async def nothing_new(caller: Cluster) -> None: ...

    monkeypatch.setattr(Cluster, "_learn", nothing_new)  # the other nodes may not know it yet
    assert await soon(broker.ends("t1")) is not None


@pytest.mark.guarantee("G3")
async def test_a_redirected_entry_is_looked_at_before_it_is_sent_again(
    bench: ProtocolBench, move: Move, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    look = WorkerBroker.look

    async def noted(broker: WorkerBroker, task_id: str, attempt: int) -> Any:
        looks.append(task_id)
        return await look(broker, task_id, attempt)

    monkeypatch.setattr(WorkerBroker, "look", noted)
    publication, losses = await staged(bench)
    publication.add_text("before")
    await soon(publication.flush())
    assert looks == []
    await asyncio.to_thread(move, bench.keys.events("t1"))
    for number in range(3):
        publication.add_text(f"behind {number}")
    await soon(publication.flush())
    assert looks == ["t1"]
    assert losses == []
    assert is_dense(bench.ids("t1"))
    assert bench.texts("t1") == ["before", "behind 0", "behind 1", "behind 2"]
    publication.close()


@pytest.mark.guarantee("G3")
async def test_a_stream_that_came_back_shorter_ends_a_silent_attempt(bench: ProtocolBench, cluster: ValkeyCluster) -> None:
    publication, losses = await staged(bench)
    publication.add_text("kept")
    await soon(publication.flush())
    publication.add_text("lost")
    await soon(publication.flush())
    broker, key = await bench.broker(), bench.keys.events("t1")
    home = cluster.owner(key)
    while True:  # away and home again, on connections that do not break
        await asyncio.to_thread(cluster.move, key)
        assert await soon(broker.ends("t1")) is not None
        if cluster.owner(key) is home:
            break
        bench.outside.xdel(key, "1-3")
    publication.add_text("behind a hole")
    with pytest.raises(Unpublishable):
        await soon(publication.flush())
    assert losses == [Loss.WENT_BACK]
    assert bench.texts("t1") == ["kept"]
    publication.close()


@pytest.mark.guarantee("G3")
async def test_entries_wait_while_their_slot_is_on_its_way(bench: ProtocolBench, cluster: ValkeyCluster) -> None:
    publication, losses = await staged(bench)
    key = bench.keys.events("t1")
    target = cluster.another(cluster.owner(key))
    source = cluster.begin_move(key, target)
    cluster.move_keys(key, source, target)
    publication.add_text("on the way")
    flushed = asyncio.create_task(publication.flush())
    await until(lambda: "ASK" in source.errors())
    cluster.end_move(key, source, target)
    await soon(flushed)
    assert losses == []
    assert is_dense(bench.ids("t1"))
    publication.close()


@pytest.mark.guarantee("G3")
async def test_a_follower_goes_along_with_a_stream(bench: ProtocolBench, move: Move) -> None:
    hand = HandWorker(bench.outside, bench.settings)
    hand.submit("t1")
    async with Client(settings=bench.settings) as client, aclosing(client.task("t1").events()) as events:
        assert places([await soon(anext(events))]) == ["0-1"]
        await asyncio.to_thread(move, bench.keys.events("t1"))
        hand.run("t1", "a", "b")
        assert places(await collected(events)) == ["1-1", "1-2", "1-3", "1-4"]


async def test_an_idle_worker_hears_of_a_job_on_a_queue_that_moved(
    bench: ProtocolBench, cluster: ValkeyCluster, move: Move
) -> None:
    broker = await bench.broker()
    line = WakeLine(broker, AGENT)
    waiting = asyncio.create_task(line.wait(5, 60))
    await until(lambda: cluster.owner(bench.keys.wake(AGENT)).blocked() == 1)
    await asyncio.to_thread(move, bench.keys.wake(AGENT))
    with pytest.raises(BrokerUnavailable, match=r"MOVED|ASK|UNBLOCKED"):
        await soon(waiting)
    again = asyncio.create_task(line.wait(5, 60))
    await bench.submitted("t1")
    assert await soon(again) == ["t1"]
    line.close()


async def test_rings_are_heard_at_all_nodes_and_where_they_moved(bench: ProtocolBench, move: Move) -> None:
    broker = await RouterBroker(bench.settings, "r1").open()
    try:
        await soon(broker.create_groups())
        while await soon(broker.read_rings(100, 0.01)):
            pass
        await asyncio.to_thread(move, bench.keys.inbox_of("t1"))
        for task in (f"t{number}" for number in range(12)):
            reading = asyncio.create_task(broker.read_rings(100, 60))
            await bench.submitted(task)
            heard = [ring.task_id for ring in await soon(reading)]
            while task not in heard:
                heard += [ring.task_id for ring in await soon(broker.read_rings(100, 60))]
    finally:
        await broker.close()


async def test_durable_waits_for_the_replicas_of_both_nodes(bench: ProtocolBench, cluster: ValkeyCluster) -> None:
    broker = await bench.broker()
    task = next(
        task
        for task in map(str, range(40))
        if cluster.owner(bench.keys.events(task)) is not cluster.owner(bench.keys.wake(AGENT))
    )
    await bench.submitted(task)
    submission = submission_of(task, a_request())
    await soon(broker.confirm_replicated([submission]))
    queue_node = cluster.owner(bench.keys.wake(AGENT))
    (replica,) = (node for node in cluster.nodes if int(node.replication().get("master_port", 0)) == queue_node.port)
    replica.server.pause()
    try:
        await broker.enqueue(AGENT, task)
        with pytest.raises(NotReplicated):
            await soon(broker.confirm_replicated([submission]))
    finally:
        replica.server.resume()


@pytest.mark.parametrize("url", ["redis+cluster://", "redis+cluster://a:x", "redis+cluster://a:1/3", "rediss+cluster://a/main"])
def test_a_url_that_names_no_cluster_is_refused(url: str) -> None:
    with pytest.raises(InvalidSettings, match="is not of the form"):
        Client(url)


async def test_a_server_that_is_no_cluster_says_so() -> None:
    with RedisServer(valkey_binary()) as server, pytest.raises(BrokerRefused, match="cluster support disabled"):
        await soon(Client(f"redis+cluster://127.0.0.1:{server.port}").open())
    with pytest.raises(BrokerUnavailable):
        await soon(Client(f"redis+cluster://127.0.0.1:{free_port()},127.0.0.1:{free_port()}").open())


def test_arq_is_refused_on_a_cluster() -> None:
    settings = make_settings("redis+cluster://127.0.0.1:1")

    async def plain(context: dict[str, Any]) -> None: ...

    agent = Agent("mixed", functions=[plain])
    with pytest.raises(InvalidSettings, match="arq knows no Cluster"):
        arq_settings(agent, settings)
    with pytest.raises(InvalidSettings, match="arq knows no Cluster"):
        Worker([agent], settings)
