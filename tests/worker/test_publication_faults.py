"""Publishing over a bad wire and on a broker in trouble (rule P5): nothing lost, doubled or left out."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from skillstream.connection import connect
from skillstream.resp import pack
from skillstream_schemas.errors import Unpublishable
from skillstream_schemas.limits import KIB
from skillstream_worker.answers import Loss, passes, problem_of
from skillstream_worker.chunking import Chunking
from skillstream_worker.publication import Publication
from tests.client.bounds import soon, until
from tests.client.busy import OPTIONS, keep_busy
from tests.conftest import make_settings
from tests.support.cutting_proxy import CuttingProxy
from tests.support.protocol_bench import FINAL_FIELDS, TASK, ProtocolBench, is_dense, refusals, staged
from tests.support.redis_server import RedisServer, binaries, free_port


@pytest.fixture(params=list(binaries()))
def own_server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    """A server of this test alone, that may be paused and killed."""
    with RedisServer(binaries()[request.param], *OPTIONS) as server:
        yield server


@pytest.fixture
async def own_bench(own_server: RedisServer) -> AsyncIterator[ProtocolBench]:
    with own_server.client() as outside:
        async with ProtocolBench(outside, make_settings(own_server.url, answer_timeout_s=60)) as opened:
            yield opened


@pytest.mark.guarantee("G3", "G5")
@pytest.mark.parametrize("count", [1, 8])
async def test_a_lost_answer_doubles_nothing(bench: ProtocolBench, proxy: CuttingProxy, count: int) -> None:
    stage = await staged(bench, settings=bench.settings.changed(redis_url=proxy.url), event_bytes=KIB)
    proxy.swallows = True
    texts = [f"{number:0>900} " for number in range(count)]
    stage.publication.add_text("".join(texts))  # cut to entries that travel in one unit
    await until(lambda: bench.texts(TASK) == texts)
    before = bench.entries(TASK)
    stage.publication.add_text("behind")
    proxy.swallows = False
    proxy.drop()
    await soon(stage.publication.flush())
    after = bench.entries(TASK)
    assert after[: len(before)] == before, "the content of an id changed"
    assert bench.texts(TASK) == [*texts, "behind"]
    assert is_dense(bench.ids(TASK))
    assert stage.losses == []


SEED = 20_240_229
CUTS = 60


@pytest.mark.guarantee("G1", "G3", "G5")
@pytest.mark.parametrize("direction", ["up", "down"])
async def test_a_connection_cut_anywhere_loses_and_doubles_nothing(
    bench: ProtocolBench, proxy: CuttingProxy, direction: str
) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    longest = 2600 if direction == "up" else 400  # bytes of one run, about
    settings = bench.settings.changed(redis_url=proxy.url)
    for number in range(CUTS):
        drops = proxy.drops
        stage = await staged(bench, settings=settings, task_id=f"cut-{number}")
        after = chance.randrange(longest)
        if direction == "up":
            proxy.cut_up_after = after
        else:
            proxy.cut_down_after = after
        texts = [f"<{place}>" for place in range(20)]
        for place, text in enumerate(texts):
            stage.publication.add_text(text)
            if chance.random() < 0.2:
                stage.publication.add_entry("type", "status", "text", str(place))
            if chance.random() < 0.3:
                await soon(stage.publication.flush())
        assert await soon(stage.publication.finish(FINAL_FIELDS)), (number, after)
        assert bench.texts(f"cut-{number}") == texts, (number, after)
        assert is_dense(bench.ids(f"cut-{number}")), (number, after)
        assert [ring["kind"] for ring in bench.rings(f"cut-{number}")].count("final") == 1
        assert stage.losses == []
        proxy.cut_up_after = proxy.cut_down_after = None
        print(f"cut {direction} after {after} bytes: {proxy.drops - drops}")
    assert proxy.drops > CUTS // 2


@pytest.mark.guarantee("G3")
@pytest.mark.parametrize("piece_bytes", [10, 20 * KIB])
async def test_no_memory_in_the_middle_of_a_flush_leaves_no_hole(own_bench: ProtocolBench, piece_bytes: int) -> None:
    stage = await staged(own_bench)
    texts = [f"{number:04}" + "x" * piece_bytes for number in range(40)]
    for text in texts[:5]:
        stage.publication.add_text(text)
    await soon(stage.publication.flush())
    before = own_bench.entries(TASK)
    used_bytes = own_bench.outside.info("memory")["used_memory"]
    own_bench.outside.config_set("maxmemory", used_bytes + 5 * piece_bytes if piece_bytes > KIB else 1)
    for text in texts[5:]:
        stage.publication.add_text(text)
    await until(lambda: refusals(own_bench.outside, "OOM", "EXECABORT") > 0)
    standing = own_bench.entries(TASK)
    assert standing[: len(before)] == before
    assert is_dense([event_id for event_id, _ in standing])
    own_bench.outside.config_set("maxmemory", 0)
    await soon(stage.publication.flush())
    assert own_bench.texts(TASK) == texts
    assert is_dense(own_bench.ids(TASK))
    assert stage.losses == []


TROUBLES = {"OOM": ("maxmemory", 1, 0), "NOREPLICAS": ("min-replicas-to-write", 1, 0)}


@pytest.mark.parametrize("kind", TROUBLES)
async def test_a_refused_transaction_tells_why(own_bench: ProtocolBench, kind: str) -> None:
    """A broker without memory is waited for, whether one entry was refused or a whole transaction."""
    name, bad, good = TROUBLES[kind]
    connection = await connect(own_bench.settings)
    own_bench.outside.config_set(name, bad)
    add = pack(("XADD", "stream", "*", "a", "b"))
    answers: list[Any] = []
    connection.send(add, 1, answers.append)
    connection.send(pack(("MULTI",)) + add + add + pack(("EXEC",)), 4, answers.append)
    await until(lambda: len(answers) == 2)
    own_bench.outside.config_set(name, good)
    connection.close()
    for replies in answers:
        problem = problem_of(replies)
        assert problem is not None
        assert problem.kind == kind
        assert passes(problem)


@pytest.mark.guarantee("G11")
async def test_no_skill_waits_for_a_paused_broker_up_to_the_buffer(own_bench: ProtocolBench, own_server: RedisServer) -> None:
    publication = (await staged(own_bench, buffer_bytes=1100 * KIB)).publication
    own_server.pause()
    try:
        for number in range(1000):
            publication.add_text(f"{number:04}" + "x" * 1020)
            assert not publication.is_full
            if number % 100 == 0:
                await soon(publication.room())
        while not publication.is_full:
            publication.add_text("y" * KIB)
        waiting = asyncio.create_task(publication.room())
        await asyncio.sleep(0)
        assert not waiting.done()
    finally:
        own_server.resume()
    await soon(waiting)
    await soon(publication.flush())
    assert "".join(own_bench.texts(TASK)) == publication.text
    assert is_dense(own_bench.ids(TASK))


@pytest.mark.guarantee("G11")
async def test_attempts_of_a_worker_share_a_bounded_buffer(own_bench: ProtocolBench, own_server: RedisServer) -> None:
    """None holds much, and all together hold no more than the worker may."""
    worker_bytes, piece, count = 256 * KIB, "x" * 4 * KIB, 40
    stages = [await staged(own_bench, task_id=f"t{number}", worker_buffer_bytes=worker_bytes) for number in range(count)]
    broker = await own_bench.broker()

    async def say(publication: Publication) -> None:
        for number in range(20):
            publication.add_text(f"{number:04}{piece}")
            await publication.room()
            await asyncio.sleep(0)  # as a skill's generator has its turns

    own_server.pause()
    try:
        saying = [asyncio.create_task(say(stage.publication)) for stage in stages]
        await until(lambda: all(stage.publication.is_full for stage in stages))
        assert not any(task.done() for task in saying)
        assert worker_bytes < broker.unanswered_bytes < worker_bytes + count * 2 * len(piece)
    finally:
        own_server.resume()
    async with asyncio.timeout(30):
        await asyncio.gather(*saying)
        for stage in stages:
            await stage.publication.flush()
    for number, stage in enumerate(stages):
        assert "".join(own_bench.texts(f"t{number}")) == stage.publication.text
        assert is_dense(own_bench.ids(f"t{number}"))
        stage.publication.close()
    assert broker.unanswered_bytes == 0


async def test_an_attempt_outlives_a_broker_that_is_busy(own_bench: ProtocolBench, own_server: RedisServer) -> None:
    async with CuttingProxy(own_server.port) as proxy:
        stage = await staged(own_bench, settings=own_bench.settings.changed(redis_url=proxy.url))
        end_script = await asyncio.to_thread(keep_busy, own_server)
        try:
            stage.publication.add_text("a")
            stage.publication.add_text("b")
            for _ in range(3):  # the entries, and the looks that follow
                await more_answers(proxy)
        finally:
            await asyncio.to_thread(end_script)
        await soon(stage.publication.flush())
    assert own_bench.texts(TASK) == ["a", "b"]
    assert stage.losses == []


async def more_answers(proxy: CuttingProxy) -> None:
    answered_bytes = proxy.down_bytes
    await until(lambda: proxy.down_bytes > answered_bytes)


async def test_an_attempt_outlives_a_broker_that_is_no_primary_for_a_while(
    own_bench: ProtocolBench, own_server: RedisServer
) -> None:
    async with CuttingProxy(own_server.port) as proxy:
        stage = await staged(own_bench, settings=own_bench.settings.changed(redis_url=proxy.url))
        own_bench.outside.replicaof("127.0.0.1", free_port())
        stage.publication.add_text("a")
        stage.publication.add_text("b")
        await until(lambda: proxy.connections > 1)  # it looks for a primary
        own_bench.outside.replicaof("NO", "ONE")
        await soon(stage.publication.flush())
        assert own_bench.texts(TASK) == ["a", "b"]
        assert stage.losses == []


@pytest.mark.parametrize("is_under_way", [False, True])
async def test_a_broker_that_stays_away_ends_the_attempt(own_server: RedisServer, is_under_way: bool) -> None:
    with own_server.client() as outside:
        async with ProtocolBench(outside, make_settings(own_server.url, patience_s=0.2)) as bench:
            stage = await staged(bench)
            if is_under_way:
                own_server.pause()
                stage.publication.add_text("under way")
                await asyncio.sleep(0)
            own_server.stop()
            stage.publication.add_text("never sent")
            with pytest.raises(Unpublishable, match="does not take entries"):
                await soon(stage.publication.flush())
            assert stage.losses == [Loss.BROKER]
            own_server.start()


async def test_nothing_is_sent_after_the_attempt_was_closed(bench: ProtocolBench) -> None:
    publication = (await staged(bench, Chunking(max_delay=60))).publication
    publication.add_text("one")
    await until(lambda: bench.texts(TASK) == ["one"])
    publication.add_text("two")
    publication.close()
    await (await bench.broker("w1")).look(TASK, 1)
    assert bench.texts(TASK) == ["one"]
