"""Jobs that were left behind their finals, and tasks whose ring was lost."""

from __future__ import annotations

import json
from typing import Any

import pytest
import redis

from skillstream_router import Router
from skillstream_schemas import job as arq_job
from skillstream_schemas import keys as arq_keys
from skillstream_schemas.card import AgentCard
from skillstream_schemas.settings import Settings

from .conftest import QUIET, RECONCILING
from .eventually import eventually
from .feed import NOW_MS, Feed
from .ledger_file import LedgerFile


def announce(outside: Any, feed: Feed) -> None:
    outside.hset(feed.keys.agents, "poet", AgentCard(name="poet", queue=arq_keys.queue("poet")).model_dump_json())


@pytest.mark.guarantee("G1")
async def test_the_job_of_a_worker_that_died_behind_its_final_is_settled(
    router_settings: Settings, feed: Feed, outside: Any
) -> None:
    feed.ended("t1")
    feed.ended("t2", agent="painter")
    feed.job("t1", owned=True)
    feed.job("t2", agent="painter")
    outside.set(arq_keys.retry(arq_keys.job_id("poet", "t1")), 1, ex=60)
    async with Router(router_settings, pace=QUIET):
        await eventually(lambda: feed.rings_left() == 0, "all rings are gone")
    assert not feed.is_queued("t1")
    assert not feed.is_queued("t2", agent="painter")
    assert outside.keys("arq:*") == []


async def test_a_stock_client_that_waits_gets_the_final_as_its_result(
    router_settings: Settings, feed: Feed, outside: Any, server_url: str
) -> None:
    request = {"agent": "poet", "skill": "rhyme", "message": "hi"}
    feed.ended("t1", text="the poem")
    feed.job("t1", arq_job.pack({"t": None, "f": "run_skill", "a": [request], "k": {}, "et": NOW_MS}))
    async with Router(router_settings, pace=QUIET):
        await eventually(lambda: feed.rings_left() == 0, "all rings are gone")
    with redis.Redis.from_url(server_url) as raw:
        kept: Any = raw.get(arq_keys.result(arq_keys.job_id("poet", "t1")))
    result = arq_job.unpack(kept)
    assert result["s"] is True
    assert (result["r"]["state"], result["r"]["text"]) == ("completed", "the poem")
    assert (result["a"], result["id"], result["et"]) == ([request], "{poet}:t1", NOW_MS)


@pytest.mark.guarantee("G7")
async def test_a_queued_task_whose_ring_was_lost_is_found_by_its_job(
    router_settings: Settings, feed: Feed, ledger_file: LedgerFile, outside: Any
) -> None:
    announce(outside, feed)
    feed.submitted("t1", context_id="chat")
    feed.job("t1")
    for shard in range(feed.keys.shard_count):
        outside.delete(feed.keys.inbox(shard))
    async with Router(router_settings, pace=RECONCILING):
        await eventually(lambda: ledger_file.state("t1") == "submitted", "the task is in the database")
    assert json.loads(ledger_file.task("t1")["request"])["context_id"] == "chat"
    feed.no_jobs("t1")


async def test_a_job_left_behind_a_recorded_final_is_found_and_settled(
    router_settings: Settings, feed: Feed, ledger_file: LedgerFile, outside: Any
) -> None:
    announce(outside, feed)
    feed.ended("here")
    feed.ended("gone")
    async with Router(router_settings, pace=QUIET):
        await eventually(lambda: feed.rings_left() == 0, "all rings are gone")
    outside.delete(feed.keys.events("gone"))
    feed.job("here")
    feed.job("gone")
    feed.job("stock-client-s-that-nobody-opened")
    async with Router(router_settings, pace=RECONCILING):
        await eventually(lambda: not feed.is_queued("here") and not feed.is_queued("gone"), "the jobs are settled")
    assert feed.is_queued("stock-client-s-that-nobody-opened")
    assert feed.stream("stock-client-s-that-nobody-opened") == []
    feed.no_jobs("stock-client-s-that-nobody-opened")
