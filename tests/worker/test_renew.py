"""Renewals and releases (rules P3, P10): the owner alone, and a lapsed lease is never taken back."""

from __future__ import annotations

import pytest
from arq import create_pool
from arq.connections import RedisSettings
from arq.constants import abort_jobs_ss
from arq.jobs import Job

from skillstream_schemas import job as arq_job
from skillstream_schemas import keys as arq_keys
from skillstream_schemas.settings import Settings
from tests.support.protocol_bench import AGENT, ProtocolBench

QUEUE = arq_keys.queue(AGENT)
MEMBER = arq_keys.job_id(AGENT, "t1")
LEASE = arq_keys.in_progress(MEMBER)


async def test_the_owner_moves_the_end_of_its_lease(bench: ProtocolBench) -> None:
    await bench.submitted("t1")
    lease = await bench.claimed("t1")
    bench.outside.pexpire(LEASE, 1000)
    before_ms = bench.server_ms()
    assert await (await bench.broker()).renew(AGENT, [lease]) == [True]
    lease_ms = bench.settings.lease_s * 1000
    assert 1000 < bench.outside.pttl(LEASE) <= lease_ms
    assert before_ms + lease_ms <= bench.queued()[MEMBER] <= bench.server_ms() + lease_ms
    assert bench.lease_value("t1") == lease.value


@pytest.mark.guarantee("G4")
async def test_nobody_else_renews(bench: ProtocolBench) -> None:
    await bench.submitted("t1")
    lease = await bench.claimed("t1")
    bench.outside.pexpire(LEASE, 1000)
    scores = bench.queued()
    others = [lease._replace(worker="w2"), lease._replace(claim=lease.claim + 1), lease._replace(claim=lease.claim - 1)]
    assert await (await bench.broker("w2")).renew(AGENT, others) == [False] * 3
    assert bench.queued() == scores
    assert bench.outside.pttl(LEASE) <= 1000


@pytest.mark.guarantee("G4")
async def test_a_lapsed_lease_is_not_taken_back(bench: ProtocolBench) -> None:
    await bench.submitted("t1")
    lease = await bench.claimed("t1")
    bench.lapse("t1")
    broker = await bench.broker()
    assert await broker.renew(AGENT, [lease]) == [False]
    assert await broker.release(lease) is False
    assert bench.lease_value("t1") is None
    assert bench.queued() == {MEMBER: 0}


@pytest.mark.guarantee("G4")
async def test_a_lease_that_another_holds_now_is_not_taken_back(bench: ProtocolBench) -> None:
    await bench.submitted("t1")
    old = await bench.claimed("t1", "w1")
    bench.lapse("t1")
    new = await bench.claimed("t1", "w2")
    assert new.claim > old.claim
    scores = bench.queued()
    broker = await bench.broker("w1")
    assert await broker.renew(AGENT, [old]) == [False]
    assert await broker.release(old) is False
    assert bench.lease_value("t1") == new.value
    assert bench.queued() == scores


async def test_each_of_many_leases_is_looked_at_by_itself(bench: ProtocolBench) -> None:
    names = [f"t{number}" for number in range(50)]
    await bench.submitted(*names)
    leases = [await bench.claimed(task_id) for task_id in names]
    for task_id in names[::3]:
        bench.lapse(task_id)
    held = await (await bench.broker()).renew(AGENT, leases)
    assert held == [number % 3 != 0 for number in range(50)]
    assert await (await bench.broker()).renew(AGENT, []) == []


async def test_a_settled_job_does_not_come_back_by_a_renewal(bench: ProtocolBench) -> None:
    await bench.submitted("t1")
    lease = await bench.claimed("t1")
    bench.outside.zrem(QUEUE, MEMBER)
    await (await bench.broker()).renew(AGENT, [lease])
    await (await bench.broker()).release(lease)
    assert bench.queued() == {}


async def test_a_release_moves_the_score_and_rings(bench: ProtocolBench) -> None:
    await bench.submitted("t1")
    lease = await bench.claimed("t1")
    bench.outside.delete(bench.keys.wake(AGENT))
    before_ms = bench.server_ms()
    assert await (await bench.broker()).release(lease) is True
    assert before_ms <= bench.queued()[MEMBER] <= bench.server_ms()
    assert bench.lease_value("t1") is None
    assert bench.woken() == [MEMBER]
    assert bench.outside.pttl(bench.keys.wake(AGENT)) > 0
    again = await bench.claimed("t1", "w2")
    assert again.claim > lease.claim


async def test_a_release_with_a_delay_outlives_the_job(bench: ProtocolBench) -> None:
    """Rule P10: expiry of the job reaches as far as the delay and the stream's TTL behind it."""
    await bench.submitted("t1")
    lease = await bench.claimed("t1")
    day_ms = 86_400_000
    before_ms = bench.server_ms()
    assert await (await bench.broker()).release(lease, delay_ms=day_ms) is True
    assert before_ms + day_ms <= bench.queued()[MEMBER] <= bench.server_ms() + day_ms
    stream_ttl_ms = bench.settings.stream_ttl_s * 1000
    assert bench.outside.pttl(arq_keys.job(MEMBER)) > day_ms + stream_ttl_ms - 60_000
    assert (await (await bench.broker("w2")).claim(AGENT, ["t1"], 0)).won == []


async def test_a_repeated_release_changes_nothing(bench: ProtocolBench) -> None:
    await bench.submitted("t1")
    lease = await bench.claimed("t1")
    broker = await bench.broker()
    await broker.release(lease, delay_ms=60_000)
    scores = bench.queued()
    assert await broker.release(lease) is False
    assert bench.queued() == scores


async def test_the_next_renewal_mends_a_score_that_a_stock_abort_overwrote(bench: ProtocolBench, settings: Settings) -> None:
    """`Job.abort()` of arq puts the job at the head of the queue (rule P16)."""
    await bench.submitted("t1")
    lease = await bench.claimed("t1")
    await stock_abort(settings)
    assert bench.queued()[MEMBER] == 1
    assert (await (await bench.broker("w2")).claim(AGENT, ["t1"], 0)).won == []
    assert await (await bench.broker("w1")).renew(AGENT, [lease]) == [True]
    assert bench.queued()[MEMBER] > bench.server_ms()
    bench.outside.delete(abort_jobs_ss)


async def stock_abort(settings: Settings) -> None:
    """What an application with arq alone calls; it waits for a result that does not come."""
    pool = await create_pool(
        RedisSettings.from_dsn(settings.redis_url),
        default_queue_name=QUEUE,
        job_serializer=arq_job.pack,
        job_deserializer=arq_job.unpack,
    )
    try:
        with pytest.raises(TimeoutError):
            await Job(MEMBER, pool, QUEUE, arq_job.unpack).abort(timeout=0.05, poll_delay=0.01)
    finally:
        await pool.aclose()


async def test_expiry_of_what_a_running_task_needs_is_raised(bench: ProtocolBench) -> None:
    lease, _ = await bench.opened("t1")
    broker = await bench.broker()
    await broker.request_cancel("t1", "enough")
    needed = [bench.keys.events("t1"), bench.keys.cancel("t1"), arq_keys.job(MEMBER)]
    for key in needed:
        bench.outside.pexpire(key, 60_000)
    await broker.extend([lease])
    stream_ttl_ms = bench.settings.stream_ttl_s * 1000
    for key in needed:
        assert bench.outside.pttl(key) > stream_ttl_ms - 60_000
