"""Client, worker and router through Sentinels, over a failover that they order and one that they notice."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import pytest
import redis

from skillstream import Client, Task
from skillstream.many_hosts import ManyHosts
from skillstream.sentinel import SentinelUrl
from skillstream_router import Router
from skillstream_schemas.errors import BrokerUnavailable, InvalidSettings
from skillstream_schemas.settings import Settings
from skillstream_worker import Agent, TaskContext, Worker
from tests.topologies.acceptance import accept
from tests.topologies.trio import SERVICE, Trio, trio, until

agent = Agent("steady")
PIECES = 60


@agent.skill("count", on_retry="restart", max_attempts=10)
async def count(message: str, context: TaskContext):  # type: ignore[no-untyped-def]
    for number in range(int(message)):
        yield f"{number} "
        await asyncio.sleep(0.02)


@pytest.fixture(scope="module")
def service() -> Iterator[Trio]:
    with trio() as started:
        yield started


def _settings(url: str, folder: Path) -> Settings:
    return Settings(redis_url=url, database_url=f"sqlite:///{folder / 'r.db'}", lease_s=2, poll_s=0.2, patience_s=20, shards=4)


@pytest.mark.timeout(120)
async def test_tasks_end_once_over_a_failover(service: Trio, tmp_path: Path) -> None:
    settings = _settings(service.url, tmp_path)
    async with Worker([agent], settings), Router(settings), Client(settings=settings) as client:
        tasks = [await client.submit("steady", "count", str(PIECES)) for _ in range(10)]
        async with aclosing(tasks[0].events()) as events:
            async for event in events:
                if event.type == "chunk":
                    break
        before = service.primary_port()
        service.ask("SENTINEL", "FAILOVER", SERVICE)
        await asyncio.to_thread(until, lambda: service.primary_port() != before, "another primary")
        finals = [await task.result(60) for task in tasks]
        await asyncio.to_thread(_wait_until_settled, service)
    assert {final.state for final in finals} == {"completed"}
    assert {final.text for final in finals} == {"".join(f"{number} " for number in range(PIECES))}
    with redis.Redis(port=service.primary_port(), decode_responses=True) as outside:
        for task in tasks:
            types = [fields["type"] for _, fields in outside.xrange(task.stream)]
            assert types.count("final") == 1
            assert types[-1] == "final"


@pytest.mark.timeout(120)
@pytest.mark.guarantee("G1", "G2", "G3", "G5", "G7", "G8", "G16")
async def test_the_main_job_while_the_primary_is_killed(tmp_path: Path) -> None:
    with trio() as service:

        def outside() -> redis.Redis:
            return redis.Redis(port=service.primary_port(), decode_responses=True)

        async def kill(tasks: list[Task]) -> None:
            service.primary.stop()
            await asyncio.to_thread(until, lambda: service.primary_port() == service.replica.port, "another primary")

        settings = _settings(service.url, tmp_path).changed(lease_s=4)
        report = await accept(settings, tmp_path / "r.db", outside, kill, talk=False)
    assert not report.violations, "\n".join(report.violations)


def _wait_until_settled(service: Trio) -> None:
    with redis.Redis(port=service.primary_port()) as outside:
        until(lambda: outside.zcard("arq:queue:{steady}") == 0, "an empty queue")


async def test_no_primary_is_said_at_once(service: Trio, tmp_path: Path) -> None:
    url = service.url.replace(f"/{SERVICE}/", "/unheard-of/")
    with pytest.raises(BrokerUnavailable, match="unheard-of"):
        await Client(settings=_settings(url, tmp_path)).open()


def test_a_url_is_read_whole() -> None:
    read = SentinelUrl.parse("rediss+sentinel://me:p%40ss@a:1,b/main/3")
    assert read == SentinelUrl(ManyHosts((("a", 1), ("b", 26379)), "main/3", "me", "p@ss", True), "main", 3)
    assert read.server_url("h", 5) == "rediss://me:p%40ss@h:5/3"
    assert SentinelUrl.parse("redis://h/0") is None


@pytest.mark.parametrize(
    "url", ["redis+sentinel://a:1", "redis+sentinel:///main", "redis+sentinel://a:x/main", "redis+sentinel://a/main/x"]
)
def test_a_url_without_its_parts_is_refused(url: str) -> None:
    with pytest.raises(InvalidSettings):
        SentinelUrl.parse(url)
