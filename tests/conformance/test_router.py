"""Traces of routers: finals that race with a reaper, two routers on one ring, commits that come late (rules P8, P13, P14)."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta

import pytest

from skillstream_schemas.ids import EventId
from skillstream_schemas.state import TaskState
from skillstream_worker.broker import Lease, WorkerBroker
from skillstream_worker.finals import final_fields
from skillstream_worker.outcome import End
from tests.client.bounds import soon, until
from tests.router.conftest import QUIET
from tests.support.verbs import AGENT

from .stage import Stage

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


@pytest.mark.guarantee("G1", "G2", "G7")
async def test_a_reaper_that_read_before_the_final_adds_none(stage: Stage) -> None:
    """P8. The router reads a task past its deadline and decides to close it · its worker writes its final · the close arrives:
    it finds the final, adds nothing, and the database has the worker's."""
    held = (await stage.seam("r1")).hold("close")
    w1 = await stage.hand("w1")
    task = await stage.submit(["say", "abc"], deadline=timedelta(hours=1))
    lease, _ = await stage.opened(w1, task.id)
    stage.say(task.id, "1-2", "abc")
    stage.lapse(task.id)
    stage.clock.ahead_ms = 2 * HOUR_MS
    await stage.router()
    await held.happened()
    await finished(w1, lease, "1-2", "abc")
    held.release()
    await stage.settled(task.id)
    await stage.charged_once(task.id)
    assert stage.view.ids(task.id) == ["0-1", "1-1", "1-2", "1-3"]


@pytest.mark.guarantee("G7", "G15")
async def test_a_final_waits_for_a_router_that_is_away_for_long(stage: Stage) -> None:
    """P13. A task ends while no router runs for more than a day · its stream keeps the long TTL; the router shortens it behind
    its commit, never before."""
    await stage.worker()
    task = await stage.submit(["say", "done"])
    await stage.settled(task.id)
    assert stage.outside.pttl(stage.keys.events(task.id)) > 2 * DAY_MS
    held = (await stage.seam("r1")).hold("PEXPIRE", stage.keys.events(task.id))
    await stage.router()
    await held.happened()
    assert stage.ledger.state(task.id) == "completed"
    assert stage.outside.pttl(stage.keys.events(task.id)) > 2 * DAY_MS
    held.release()
    await until(lambda: 0 < stage.outside.pttl(stage.keys.events(task.id)) <= DAY_MS)
    await stage.charged_once(task.id)


@pytest.mark.guarantee("G7", "G16")
@pytest.mark.parametrize("step", ["XRANGE", "PEXPIRE", "XACK"])
async def test_a_ring_that_two_routers_work_off_takes_effect_once(stage: Stage, step: str) -> None:
    """P13. A reads a ring and stalls, before its commit or behind it · B takes the ring over and applies it · A goes on with
    the same: effects follow from the row that became final, not from the ring."""
    await stage.worker()
    task = await stage.submit(["say", "done"])
    await stage.settled(task.id)
    about = () if step == "XACK" else (stage.keys.events(task.id),)
    held = (await stage.seam("ra")).hold(step, *about)
    await stage.router("ra", QUIET)
    await held.happened()
    await stage.router("rb", QUIET)
    await until(lambda: stage.rings_left() == 0)
    held.release()
    await until(lambda: stage.seams["ra"].count("XACK") > 0)
    await stage.charged_once(task.id)
    assert stage.ledger.rows("SELECT count(*) FROM postings") == [(4,)]


@pytest.mark.guarantee("G7", "G16")
async def test_a_late_commit_takes_no_task_back(stage: Stage) -> None:
    """P13. A reads a task that runs, its answer is late · the task ends, B commits that · A commits `working`: a state goes
    forward only, the task stays completed and is charged once."""
    w1 = await stage.hand("w1")
    task = await stage.submit(["say", "abc"])
    lease, _ = await stage.opened(w1, task.id)
    seam = await stage.seam("ra")
    late = seam.late_answer("XREVRANGE", stage.keys.events(task.id))
    await stage.router("ra", QUIET)
    await late.happened()
    await finished(w1, lease, "1-1", "abc")
    await stage.router("rb", QUIET)
    await until(lambda: stage.ledger.state(task.id) == "completed")
    late.release()
    await until(lambda: seam.count("XACK") > 0 and stage.rings_left() == 0)
    await stage.settled(task.id)
    await stage.charged_once(task.id)


@pytest.mark.guarantee("G7")
async def test_a_ring_is_acknowledged_behind_the_commit(stage: Stage) -> None:
    """P13. A has read a ring and cannot write yet: were it acknowledged now, and A dead a moment later, the task's effects
    would be lost · once the row is committed, the ring goes."""
    await stage.worker()
    await stage.router("ra", QUIET)
    first = await stage.submit(["say", "done"])
    await stage.charged_once(first.id)
    await until(lambda: stage.rings_left() == 0)
    acknowledged = stage.seams["ra"].count("XACK")
    with stage.ledger.locked():
        task = await stage.submit(["say", "done"])
        await stage.settled(task.id)
        await until(lambda: stage.seams["ra"].passed[-1] == "XREADGROUP")
        assert stage.seams["ra"].count("XACK") == acknowledged
        assert stage.rings_left() == 3
    await until(lambda: stage.rings_left() == 0)
    assert stage.ledger.state(task.id) == "completed"


@pytest.mark.guarantee("G7")
async def test_no_number_of_unread_rings_pushes_a_final_out(stage: Stage) -> None:
    """P13. A final rings, then very many others, no router reads · the inbox has no bound of its own: all are there, all are
    applied."""
    w1 = await stage.hand("w1")
    first = await stage.submit(["say", "done"])
    lease, _ = await stage.opened(w1, first.id)
    await finished(w1, lease, "1-1", "done")
    others = await soon(asyncio.gather(*(stage.submit(["say", "later"], delay=3600) for _ in range(400))))
    assert stage.rings_left() == 403
    await stage.router(pace=QUIET)
    await until(lambda: stage.rings_left() == 0)
    assert stage.ledger.rows("SELECT count(*) FROM tasks WHERE state = 'submitted'") == [(len(others),)]
    await stage.charged_once(first.id)
    await soon(asyncio.gather(*(task.cancel() for task in others)))


@pytest.mark.guarantee("G7")
async def test_a_list_of_messages_is_never_replaced_by_an_older_one(stage: Stage) -> None:
    """P13. A has committed the first turn of a context and stalls before it writes the list · B commits the second and writes ·
    A's list arrives: it is older and refused; no message is doubled or lost."""
    await stage.worker()
    held = (await stage.seam("ra")).hold("context")
    first = await stage.submit(["say", "one"], context_id="talk")
    await stage.settled(first.id)
    await stage.router("ra", QUIET)
    await held.happened()
    second = await stage.submit(["say", "two"], context_id="talk")
    await stage.settled(second.id)
    await stage.router("rb", QUIET)
    await until(lambda: len(messages(stage)) == 4)
    held.release()
    await until(lambda: stage.rings_left() == 0 and stage.seams["ra"].count("context") > 0)
    assert messages(stage) == [("user", first.id), ("agent", first.id), ("user", second.id), ("agent", second.id)]


async def finished(broker: WorkerBroker, lease: Lease, last: str, text: str) -> None:
    """Writes a final by hand, behind an attempt's last entry."""
    top = EventId.parse(last)
    fields = final_fields(AGENT, End(TaskState.COMPLETED), text, top.seq - 1, {})
    assert (await broker.finish(lease, top, fields)).at


def messages(stage: Stage) -> list[tuple[str, str]]:
    """Who said something in which task of the context."""
    found = map(json.loads, stage.outside.lrange(stage.keys.context_messages("talk"), 0, -1))
    return [(message["role"], message["task_id"]) for message in found]
