"""Traces of a failover to a replica that lacks acknowledged writes: what no reader or payer may see (rule P17)."""

from __future__ import annotations

import pytest

from skillstream_schemas import keys as arq_keys
from skillstream_schemas.errors import NotReplicated, UnknownTask
from skillstream_schemas.job import pack
from skillstream_worker import Chunking
from tests.client.bounds import soon, until
from tests.router.conftest import RECONCILING
from tests.support.protocol_bench import port_of
from tests.support.redis_server import RedisServer, binaries
from tests.support.verbs import AGENT

from .stage import Stage

LONG_LEASE_S = 30
MINUTE_MS = 60_000


@pytest.mark.guarantee("G3", "G5")
async def test_a_stream_that_went_back_under_a_live_attempt_gets_no_hole(stage: Stage) -> None:
    """P5. W1 wrote 1-2 and 1-3 · the new server has 1-2 only · its next entry, 1-4, would be accepted and the hole be seen by
    nobody with a cursor: W1 looks after the break, gives the attempt up and hands the job back at once."""
    seam = await stage.seam("w1")
    await stage.worker(agent=stage.agent(chunking=Chunking.off()), lease_s=LONG_LEASE_S)
    task = await stage.submit(["say", "a"], ["say", "b"], ["reach", "half"], ["wait", "more"], ["say", "c"])
    await stage.gates.reached("half")
    await until(lambda: stage.view.ids(task.id)[-1] == "1-3")
    stage.go_back(task.id, *stage.view.entries(task.id)[:-1])
    seam.drop()
    stage.gates.open("more")
    assert (await stage.settled(task.id))["text"] == "abc"
    assert stage.view.ids(task.id) == ["0-1", "1-1", "1-2", *(f"2-{seq}" for seq in range(1, 6))]
    assert stage.chunks(task.id, 2) == "abc"


@pytest.mark.guarantee("G4", "G5")
async def test_an_attempt_whose_number_was_given_again_writes_nothing_more(stage: Stage) -> None:
    """P5. W1 opened attempt 1 and wrote · the new server has 0-1 only · W2 opens attempt 1 · W1, connected again, sees
    another's claim in its opening and stops: two workers would write one attempt."""
    seam = await stage.seam("w1")
    w1 = await stage.worker("w1", lease_s=LONG_LEASE_S)
    task = await stage.submit(["say", "first"], ["reach", "half"], ["wait", "more"], ["say", "late"])
    await stage.gates.reached("half")
    await until(lambda: stage.view.ids(task.id)[-1] == "1-2")
    stage.go_back(task.id, *stage.view.entries(task.id)[:1])
    stage.lapse(task.id)
    w2 = await stage.hand("w2")
    lease, attempt = await stage.opened(w2, task.id)
    assert attempt == 1
    seam.drop()
    stage.gates.open("more")
    await until(lambda: not w1.running)
    assert stage.view.ids(task.id) == ["0-1", "1-1"]
    assert stage.view.lease(task.id) == lease.value
    await stage.close_by_hand(task.id)


@pytest.mark.guarantee("G2")
@pytest.mark.parametrize("broken", [True, False], ids=["connection broken", "connection kept"])
async def test_nothing_follows_the_final_of_a_stream_that_was_lost(stage: Stage, broken: bool) -> None:
    """P5, P14. W1 wrote 1-2 and is silent · the stream is lost, the router makes it again and ends it as lost · W1 writes 1-3,
    which would be accepted behind a final 1-2. After a broken connection W1 looks first; without one (the keys were flushed)
    the final stands in an attempt behind W1's, so that the id is refused."""
    seam = await stage.seam("w1")
    w1 = await stage.worker("w1", lease_s=LONG_LEASE_S)
    task = await stage.submit(["say", "a"], ["reach", "half"], ["wait", "more"], ["say", "b"], ["wait", "never"])
    await stage.gates.reached("half")
    await until(lambda: stage.view.ids(task.id)[-1] == "1-2")
    await stage.router()
    await until(lambda: stage.ledger.state(task.id) == "working")
    stage.outside.delete(stage.keys.events(task.id))
    await until(lambda: stage.ledger.state(task.id) == "failed")
    if broken:
        seam.drop()
    stage.gates.open("more")
    await until(lambda: not w1.running)
    assert (await stage.settled(task.id))["error"] == "stream_lost"
    assert stage.ledger.task(task.id)["error"] == "stream_lost"


@pytest.mark.guarantee("G7", "G16")
async def test_a_final_that_the_broker_lost_is_put_there_again(stage: Stage) -> None:
    """P14. A task is completed and charged · the new server has its job and its stream without the final, no worker lives · the
    database wins: the router closes the stream with the final that it has and settles."""
    task = await completed(stage)
    final = stage.view.final(task)
    stage.go_back(task, *stage.view.entries(task)[:-1])
    requeued(stage, task)
    await stage.router("r2", RECONCILING)
    ended = await stage.settled(task)
    assert (ended["state"], ended["text"]) == (final["state"], final["text"])
    await stage.charged_once(task)
    assert len(stage.gates.contexts) == 1


@pytest.mark.guarantee("G1", "G7")
async def test_a_final_that_was_lost_alone_is_put_there_again(stage: Stage) -> None:
    """P14. A task is completed, charged and settled · the node of its stream loses the final and its ring, the queue's node
    nothing: no job and no ring leads there · a router that is connected again looks at what it recorded last: one final on the
    stream."""
    await stage.worker()
    seam = await stage.seam("r1")
    await stage.router("r1")
    task = await stage.submit(["say", "done"])
    await stage.settled(task.id)
    await stage.charged_once(task.id)
    await until(lambda: stage.rings_left() == 0)
    stage.go_back(task.id, *stage.view.entries(task.id)[:-1])
    seam.drop()
    ended = await stage.settled(task.id)
    assert (ended["state"], ended["text"]) == ("completed", "done")
    await until(lambda: stage.rings_left() == 0)
    await stage.charged_once(task.id)


@pytest.mark.guarantee("G7", "G16")
async def test_a_task_that_runs_again_after_its_final_was_lost_is_charged_once(stage: Stage) -> None:
    """P17. A task is completed and charged · the new server has its job and its stream without the final · a worker is quicker
    than the router and runs it again, with another end: one final on the stream, the row and the money stay as they were."""
    task = await completed(stage)
    row = stage.ledger.task(task)
    stage.go_back(task, *stage.view.entries(task)[:-1])
    requeued(stage, task)
    await stage.worker("w2")
    await stage.settled(task)
    assert len(stage.gates.contexts) == 2
    await stage.router("r2")
    await until(lambda: stage.rings_left() == 0)
    assert stage.ledger.task(task) == row
    await stage.charged_once(task)


@pytest.mark.guarantee("G1")
@pytest.mark.parametrize("opened", [False, True])
async def test_a_queue_that_was_lost_is_filled_again(stage: Stage, opened: bool) -> None:
    """P14. The node of the queue loses its keys · a task waits, or was running, without a job: the router enqueues it again."""
    task = await stage.submit(["say", "done"])
    if opened:
        await stage.opened(await stage.hand("w0"), task.id)
    await stage.router()
    await until(lambda: stage.ledger.state(task.id) is not None)
    member = arq_keys.job_id(AGENT, task.id)
    stage.outside.delete(arq_keys.queue(AGENT), arq_keys.job(member), arq_keys.in_progress(member), arq_keys.retry(member))
    stage.outside.delete(stage.keys.wake(AGENT))
    stage.clock.ahead_ms = MINUTE_MS
    await stage.worker()
    assert (await stage.settled(task.id))["text"] == "done"


@pytest.mark.guarantee("G1", "G7")
@pytest.mark.parametrize("ended", [False, True])
async def test_a_job_whose_stream_was_lost_runs_nothing(stage: Stage, ended: bool) -> None:
    """P4, P14. The node of the stream loses it, the job is there · the worker finds no stream and rings `gone`: the router ends
    the task as lost, or settles it where the database has its final."""
    if ended:
        task = await completed(stage)
    else:
        task = (await stage.submit(["say", "done"])).id
    runs = len(stage.gates.contexts)
    stage.go_back(task)
    requeued(stage, task)
    await stage.worker("w2", lease_s=1)
    await until(lambda: "gone" in stage.view.rings(task))
    await stage.router("r2")
    await until(lambda: stage.view.score(task) is None and stage.ledger.state(task) in ("completed", "failed"))
    if ended:
        await stage.charged_once(task)
        assert stage.view.entries(task) == []
    else:
        assert (await stage.settled(task))["error"] == "stream_lost"
    assert len(stage.gates.contexts) == runs


@pytest.mark.guarantee("G6")
async def test_a_submission_that_no_replica_had_is_forgotten(stage: Stage) -> None:
    """P17. A submission is acknowledged, then all that the server knew of it is lost · it is forgotten, and says so; the same
    id is a new task. That is why `durable` exists."""
    task = await stage.submit(["say", "done"], task_id="t1")
    stage.outside.flushall()
    with pytest.raises(UnknownTask):
        await soon(task.result())
    await stage.worker()
    again = await stage.submit(["say", "done"], task_id="t1")
    assert (await soon(again.result())).text == "done"
    await stage.settled("t1")


async def test_a_durable_submission_is_refused_where_no_replica_has_it(stage: Stage) -> None:
    """P1, P17. `durable` waits until a replica has the task · there is none: NotReplicated, although the task may run."""
    with pytest.raises(NotReplicated):
        await soon(stage.submit(["say", "done"], task_id="t1", durable=True))
    await stage.close_by_hand("t1")


async def test_a_durable_submission_outlives_its_server(stage: Stage) -> None:
    """P1, P17. `durable`, with a replica: when it comes back, stream and job are on the other server."""
    port = port_of(stage.settings)
    stage.outside.config_set("repl-diskless-sync-delay", 0)
    binary = binaries()["redis" if stage.outside.info("server").get("server_name") is None else "valkey"]
    with RedisServer(binary, "--replicaof", f"127.0.0.1 {port}") as replica, replica.client() as shown:
        stage.outside.set("before", 1, px=60_000)
        await until(lambda: stage.outside.wait(1, 100) == 1, bound_s=30)  # it has come up with the other and confirms
        task = await soon(stage.submit(["say", "done"], durable=True))
        assert shown.xlen(stage.keys.events(task.id)) == 1
        assert shown.zcard(arq_keys.queue(AGENT)) == 1
    await stage.close_by_hand(task.id)


async def completed(stage: Stage) -> str:
    """A task that is completed, in the database and charged; worker and router are gone."""
    worker, router = await stage.worker("w1"), await stage.router("r1")
    task = await stage.submit(["attempt", 1, ["say", "done"]], ["attempt", 2, ["say", "done again"]])
    await stage.settled(task.id)
    await stage.charged_once(task.id)
    await until(lambda: stage.rings_left() == 0)
    await worker.stop()
    await router.__aexit__()
    return task.id


def requeued(stage: Stage, task_id: str) -> None:
    """The job as it was before it was settled."""
    member = arq_keys.job_id(AGENT, task_id)
    stage.outside.set(arq_keys.job(member), pack({"t": None, "f": "run_skill", "a": [], "k": {}, "et": 1}), ex=60)
    stage.outside.zadd(arq_keys.queue(AGENT), {member: 0})
