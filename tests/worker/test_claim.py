"""Claims (rule P2): by name, due and ownerless jobs alone, each won by one worker, in one slot with declared keys."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import chain, pairwise

import pytest
import redis

from skillstream.broker import Settlement
from skillstream_schemas import keys as arq_keys
from skillstream_schemas.ids import EventId
from skillstream_schemas.job import read_job
from skillstream_schemas.settings import Settings
from skillstream_worker.broker import WakeLine
from skillstream_worker.openings import AlreadyFinal, MustClose
from tests.client.bounds import soon
from tests.support.monitor import Monitor
from tests.support.protocol_bench import AGENT, FINAL_FIELDS, ProtocolBench, a_request

QUEUE = arq_keys.queue(AGENT)


async def test_a_claim_takes_the_job_until_the_lease_ends(bench: ProtocolBench) -> None:
    await bench.submitted("t1")
    broker = await bench.broker("w1")
    before_ms = bench.server_ms()
    claimed = await broker.claim(AGENT, ["t1"], 0)
    after_ms = bench.server_ms()
    (job,) = claimed.won
    member = arq_keys.job_id(AGENT, "t1")
    assert (job.task_id, job.claims) == ("t1", 1)
    assert job.payload is not None
    assert read_job(job.payload).request is None
    assert before_ms * 1000 <= job.claim <= (after_ms + 1) * 1000
    assert bench.lease_value("t1") == f"w1:{job.claim}"
    lease_ms = bench.settings.lease_s * 1000
    assert before_ms + lease_ms <= bench.queued()[member] <= after_ms + lease_ms
    assert 0 < bench.outside.pttl(arq_keys.in_progress(member)) <= lease_ms
    assert bench.outside.get(arq_keys.retry(member)) == "1"
    assert bench.outside.pttl(arq_keys.retry(member)) > 0


async def test_only_named_jobs_are_taken(bench: ProtocolBench) -> None:
    await bench.submitted("t1", "t2", "t3")
    claimed = await (await bench.broker()).claim(AGENT, ["t2", "not queued"], 0)
    assert [job.task_id for job in claimed.won] == ["t2"]
    assert [bench.lease_value(task_id) is None for task_id in ("t1", "t2", "t3")] == [True, False, True]
    assert bench.outside.exists(arq_keys.in_progress(arq_keys.job_id(AGENT, "not queued"))) == 0


async def test_a_job_that_is_not_due_is_left(bench: ProtocolBench) -> None:
    await bench.submitted("later", delay_ms=60_000)
    await bench.submitted("now")
    broker = await bench.broker()
    scores = bench.queued()
    claimed = await broker.claim(AGENT, ["later"], 10)
    assert claimed.won == []
    assert bench.queued() == scores
    assert claimed.due_ms == scores[arq_keys.job_id(AGENT, "later")]


async def test_a_job_with_an_owner_is_left_even_where_it_is_due(bench: ProtocolBench) -> None:
    await bench.submitted("t1")
    lease = await bench.claimed("t1", "w1")
    bench.outside.zadd(QUEUE, {arq_keys.job_id(AGENT, "t1"): 0})  # as a stock client's abort leaves it
    claimed = await (await bench.broker("w2")).claim(AGENT, ["t1"], 0)
    assert claimed.won == []
    assert bench.lease_value("t1") == lease.value
    assert bench.queued()[arq_keys.job_id(AGENT, "t1")] == 0


async def test_a_lease_that_lapsed_is_claimed_again_by_itself(bench: ProtocolBench, settings: Settings) -> None:
    """The score is the lease's end: no one has to put a dead worker's job back."""
    short = await bench.broker("w2", settings.changed(lease_s=0.5))
    await bench.submitted("t1")
    first = (await short.claim(AGENT, ["t1"], 0)).won[0]
    second = None
    async with asyncio.timeout(10):
        while second is None:
            won = (await short.claim(AGENT, ["t1"], 0)).won
            second = won[0] if won else None
    assert second.claims == 2
    assert second.claim - first.claim >= 500_000


async def test_claims_increase_within_a_call_and_from_call_to_call(bench: ProtocolBench) -> None:
    names = [f"t{number}" for number in range(120)]
    await bench.submitted(*names)
    brokers = [await bench.broker("w1"), await bench.broker("w2")]
    claims: list[int] = []
    for place in range(0, len(names), 20):
        claimed = await brokers[place // 20 % 2].claim(AGENT, names[place : place + 20], 0)
        assert [job.task_id for job in claimed.won] == names[place : place + 20]
        claims += [job.claim for job in claimed.won]
    assert all(earlier < later for earlier, later in pairwise(claims))


async def test_further_candidates_are_wake_tokens_first_then_due_jobs(bench: ProtocolBench) -> None:
    await bench.submitted("t1", "t2", "t3")
    broker = await bench.broker()
    assert (await broker.claim(AGENT, [], 2)).further == ["t1", "t2"]
    assert bench.woken() == [arq_keys.job_id(AGENT, "t3")]
    assert (await broker.claim(AGENT, [], 5)).further == ["t3"]
    # no tokens are left: the queue itself is asked, oldest first
    assert (await broker.claim(AGENT, ["t1"], 5)).further == ["t2", "t3"]
    assert (await broker.claim(AGENT, [], 1)).further == ["t2"]
    assert (await broker.claim(AGENT, ["t2", "t3"], 5)).further == []


async def test_no_candidates_are_named_where_none_are_wanted(bench: ProtocolBench) -> None:
    await bench.submitted("t1", "t2")
    claimed = await (await bench.broker()).claim(AGENT, ["t1"], 0)
    assert (claimed.further, claimed.due_ms) == ([], None)
    assert len(bench.woken()) == 2


async def test_the_next_moment_at_which_a_job_falls_due(bench: ProtocolBench) -> None:
    broker = await bench.broker()
    assert (await broker.claim(AGENT, [], 1)).due_ms is None
    await bench.submitted("much later", delay_ms=90_000)
    await bench.submitted("later", delay_ms=60_000)
    assert (await broker.claim(AGENT, [], 1)).due_ms == bench.queued()[arq_keys.job_id(AGENT, "later")]
    await bench.submitted("t1")
    claimed = await broker.claim(AGENT, ["t1"], 1)
    assert claimed.due_ms == bench.queued()[arq_keys.job_id(AGENT, "t1")], "a lease's end is such a moment as well"


MALFORMED = ["plain", "{other}:t1", "{echo}", "{echo}:", "{echo}:a b", "{echo}:a:b", "{echo}:" + "x" * 129, "{echo}:ä"]


@pytest.mark.guarantee("G13")
async def test_members_that_are_no_job_ids_of_the_agent_are_removed_and_reported(bench: ProtocolBench) -> None:
    await bench.submitted("t1", "x" * 128)
    bench.outside.delete(bench.keys.wake(AGENT))
    bench.outside.zadd(QUEUE, dict.fromkeys(MALFORMED, 1))
    bench.outside.zadd(QUEUE, {b"{echo}:\xff\xfe": 1})
    broker = await bench.broker()
    claimed = await broker.claim(AGENT, [], 100)
    assert sorted(claimed.removed) == sorted([*MALFORMED, "{echo}:\\xff\\xfe"])
    assert sorted(claimed.further) == sorted(["t1", "x" * 128])
    assert set(bench.queued()) == {arq_keys.job_id(AGENT, task_id) for task_id in ("t1", "x" * 128)}
    assert (await broker.claim(AGENT, [], 100)).removed == []


@pytest.mark.guarantee("G13")
async def test_wake_tokens_that_are_no_job_ids_are_passed_over(bench: ProtocolBench) -> None:
    broker = await bench.broker()
    tokens = [*MALFORMED, b"\xff", arq_keys.job_id(AGENT, "t1"), arq_keys.job_id(AGENT, "t1")]
    bench.outside.rpush(bench.keys.wake(AGENT), *tokens)
    assert (await broker.claim(AGENT, [], 100)).further == ["t1"]
    bench.outside.rpush(bench.keys.wake(AGENT), *tokens)
    line = WakeLine(broker, AGENT)
    assert await soon(line.wait(100, 1)) == ["t1"]
    line.close()


async def test_an_idle_worker_hears_of_a_job_at_once(bench: ProtocolBench) -> None:
    line = WakeLine(await bench.broker(), AGENT)
    assert await soon(line.wait(5, 0.001)) == []
    waiting = asyncio.create_task(line.wait(5, 60))
    await bench.submitted("t1")
    assert await soon(waiting) == ["t1"]
    assert bench.woken() == []
    line.close()


async def test_a_job_whose_payload_is_gone_is_won_without_one(bench: ProtocolBench) -> None:
    await bench.submitted("t1")
    bench.outside.delete(arq_keys.job(arq_keys.job_id(AGENT, "t1")))
    (job,) = (await (await bench.broker()).claim(AGENT, ["t1"], 0)).won
    assert job.payload is None


async def test_of_two_workers_at_200_jobs_each_job_has_one_owner(bench: ProtocolBench) -> None:
    names = [f"t{number}" for number in range(200)]
    await bench.submitted(*names)
    order = {"w1": names, "w2": names[::-1]}
    brokers = {worker: await bench.broker(worker) for worker in order}  # both stand at the start

    async def race(worker: str) -> list[str]:
        broker = brokers[worker]
        won: list[str] = []
        for place in range(0, len(names), 7):
            claimed = await broker.claim(AGENT, order[worker][place : place + 7], 7)
            won += [job.task_id for job in claimed.won]
        return won

    shares = await soon(asyncio.gather(*map(race, order)))
    assert Counter(chain(*shares)) == Counter(names)
    for worker, share in zip(order, shares, strict=True):
        assert share
        assert all((bench.lease_value(task_id) or "").startswith(f"{worker}:") for task_id in share)


async def test_a_repeated_claim_of_a_lost_answer_wins_nothing_twice(bench: ProtocolBench) -> None:
    await bench.submitted("t1")
    lease = await bench.claimed("t1")
    assert (await (await bench.broker()).claim(AGENT, ["t1"], 0)).won == []
    assert bench.lease_value("t1") == lease.value


async def test_scripts_touch_no_key_that_they_do_not_declare(bench: ProtocolBench) -> None:
    w1, w2 = await bench.broker("w1"), await bench.broker("w2")
    with Monitor(bench.outside) as monitor:
        lease, _ = await bench.opened("t1")
        await w1.open_attempt(lease, None)
        await w1.renew(AGENT, [lease, lease._replace(claim=1)])
        await w1.release(lease)
        await w1.request_cancel("t1", "enough")
        again = await bench.claimed("t1", "w2")
        assert isinstance(await w2.open_attempt(again, None), MustClose)
        assert (await w2.finish(lease, EventId(1, 1), FINAL_FIELDS)).at
        assert isinstance(await w2.open_attempt(again, None), AlreadyFinal)
        await w2.settle(AGENT, [Settlement("t1", b"result")])
        await w2.open_attempt(again._replace(task_id="stock"), a_request())
        await w2.open_attempt(again._replace(task_id="gone"), None)
        bench.outside.zadd(QUEUE, {"malformed": 1})
        await w2.claim(AGENT, [], 10)
        await w2.claim(AGENT, [], 10)
        assert monitor.undeclared() == set()


def test_the_check_of_declared_keys_sees_one_that_is_not(outside: redis.Redis) -> None:
    with Monitor(outside) as monitor:
        outside.eval("return redis.call('SET', KEYS[1] .. '2', 'x', 'PX', '10')", 1, "key")
        assert monitor.undeclared() == {("SET", "key2")}
