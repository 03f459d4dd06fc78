"""`skillstream worker` as real processes: signals, crashes, bursts."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from skillstream import Client
from skillstream_schemas.state import TaskState
from tests.client.bounds import TRIES, until
from tests.client.hand_worker import HandWorker
from tests.support import cli_agent
from tests.support.processes import START_S

from .view import View
from .worker_process import TARGET, Spawn

AGENT = cli_agent.agent.name


class Door:
    """Responsible for the socket at which `hold` waits."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._entered = asyncio.Semaphore(0)
        self._open = asyncio.Event()
        self._server: asyncio.Server | None = None

    async def build(self) -> None:
        """Listens."""
        self._server = await asyncio.start_unix_server(self._enter, self.path)

    async def close(self) -> None:
        """Lets all pass and goes."""
        self._open.set()
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    async def entered(self) -> None:
        """Waits until one more skill stands here."""
        await asyncio.wait_for(self._entered.acquire(), START_S)

    def open(self) -> None:
        """Lets all pass."""
        self._open.set()

    def shut(self) -> None:
        """Holds all that come from now on."""
        self._open.clear()

    async def _enter(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.readline():
            self._entered.release()
            gone = asyncio.create_task(reader.read())
            opened = asyncio.create_task(self._open.wait())
            await asyncio.wait([gone, opened], return_when=asyncio.FIRST_COMPLETED)
            gone.cancel()
            opened.cancel()
        writer.close()


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Door]:
    built = Door(tmp_path / "door")
    await built.build()
    yield built
    await built.close()


@pytest.mark.guarantee("G12")
async def test_sigterm_lets_a_running_task_end(spawn: Spawn, client: Client, view: View, door: Door) -> None:
    worker = await spawn(TARGET, "--grace", "10")
    await worker.ready()
    task = await client.submit(AGENT, "hold", door.path)
    await door.entered()
    worker.process.send_signal(signal.SIGTERM)
    later = await client.submit(AGENT, "echo", "later")
    door.open()
    assert await worker.ended() == 0
    assert view.final(task.id)["text"] == "attempt 1 ended"
    assert view.opening(task.id)["worker"] == worker.names[0]
    assert view.arq_keys_of(task.id, AGENT) == []
    if view.shape(later.id) == ["submitted"]:  # the signal may have come in behind it
        await later.cancel()


@pytest.mark.guarantee("G12")
async def test_what_does_not_end_within_the_grace_period_is_handed_back(
    spawn: Spawn, client: Client, view: View, door: Door
) -> None:
    first = await spawn(TARGET, "--grace", "0.2")
    await first.ready()
    task = await client.submit(AGENT, "hold", door.path)
    await door.entered()
    first.process.send_signal(signal.SIGTERM)
    assert await first.ended() == 0
    assert view.shape(task.id) == ["submitted", "working", "chunk attempt 1", "drain"]
    assert view.lease(task.id, AGENT) is None
    second = await spawn(TARGET, "--burst")
    await door.entered()
    door.open()
    assert await second.ended() == 0
    assert (view.final(task.id)["text"], view.opening(task.id, 2)["strikes"]) == ("attempt 2 ended", "1")


@pytest.mark.guarantee("G12")
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal_hands_back_at_once(
    spawn: Spawn, client: Client, view: View, door: Door, signum: signal.Signals
) -> None:
    worker = await spawn(TARGET, "--grace", "600")
    await worker.ready()
    task = await client.submit(AGENT, "hold", door.path)
    await door.entered()
    await until(lambda: "blmpop" in [connection["cmd"] for connection in _connections(view)])
    before = len(_connections(view))
    worker.process.send_signal(signum)
    await until(lambda: len(_connections(view)) < before)  # it has heard the signal and claims no more
    worker.process.send_signal(signum)
    assert await worker.ended() == 0
    assert view.shape(task.id)[-1] == "drain"
    hand_over = await spawn(TARGET, "--burst")
    door.open()
    assert await hand_over.ended() == 0
    assert view.final(task.id)["state"] == "completed"


@pytest.mark.guarantee("G12")
async def test_what_is_handed_back_is_claimed_at_once(spawn: Spawn, client: Client, view: View, door: Door) -> None:
    """By a worker that runs already: no lease has to end first."""
    lease_s = 60
    first = await spawn(TARGET, "--grace", "0", "--lease", str(lease_s))
    await first.ready()
    tasks = [await client.submit(AGENT, "hold", door.path) for _ in range(5)]
    for _ in tasks:
        await door.entered()
    second = await spawn(TARGET)
    await second.ready()
    first.process.send_signal(signal.SIGTERM)
    for _ in tasks:
        await door.entered()
    assert await first.ended() == 0
    for task in tasks:
        handed_back, opening = (dict(view.entries(task.id))[entry_id] for entry_id in ("1-3", "2-1"))
        assert handed_back["handed_back"] == "drain"
        assert opening["worker"] == second.names[0]
        assert int(opening["at"]) - int(handed_back["at"]) < lease_s * 1000 / 2
    door.open()
    assert [(await task.result(START_S)).state for task in tasks] == [TaskState.COMPLETED] * 5
    second.process.send_signal(signal.SIGTERM)
    assert await second.ended() == 0


@pytest.mark.guarantee("G1", "G10")
async def test_the_task_of_a_killed_worker_restarts_within_its_lease(
    spawn: Spawn, client: Client, view: View, door: Door
) -> None:
    lease_s = 1.0
    first = await spawn(TARGET, "--lease", str(lease_s))
    await first.ready()
    took_ms: list[int] = []
    while not took_ms or (took_ms[-1] > (lease_s + 1) * 1000 and len(took_ms) < TRIES):
        door.shut()
        task = await client.submit(AGENT, "hold", door.path)
        await door.entered()
        second = await spawn(TARGET, "--lease", str(lease_s))
        await second.ready()
        await until(lambda: view.texts(task.id) == ["attempt 1"])  # noqa: B023 - looked at in this turn
        killed_ms = view.now_ms()
        first.process.kill()
        assert await first.ended() == -signal.SIGKILL
        await door.entered()
        opening = view.opening(task.id, 2)
        assert opening["worker"] == second.names[0]
        took_ms.append(int(opening["at"]) - killed_ms)
        door.open()
        assert (await task.result(START_S)).text == "attempt 2 ended"
        first = second
    assert took_ms[-1] <= (lease_s + 1) * 1000, took_ms
    second.process.send_signal(signal.SIGTERM)
    assert await second.ended() == 0


async def test_a_burst_runs_what_is_due_and_ends(spawn: Spawn, client: Client, view: View, hand: HandWorker) -> None:
    hand.announce(*cli_agent.agent.card.skills, agent=AGENT)
    tasks = [await client.submit(AGENT, "echo", str(n)) for n in range(20)]
    worker = await spawn(TARGET, "--burst", "--concurrency", "3")
    assert await worker.ended() == 0
    assert [view.final(task.id)["text"] for task in tasks] == [str(n) for n in range(20)]
    assert view.queued(AGENT) == []


async def test_a_burst_without_tasks_ends(spawn: Spawn) -> None:
    assert await (await spawn(TARGET, "--burst")).ended() == 0


async def test_several_processes_share_the_work_and_stop_together(spawn: Spawn, client: Client, view: View, door: Door) -> None:
    worker = await spawn(TARGET, "--processes", "2", "--concurrency", "1")
    await worker.ready(2)
    assert len(set(worker.names)) == 2
    tasks = [await client.submit(AGENT, "hold", door.path) for _ in range(2)]
    for _ in tasks:
        await door.entered()
    assert {view.opening(task.id)["worker"] for task in tasks} == set(worker.names)
    worker.process.send_signal(signal.SIGTERM)
    door.open()
    assert await worker.ended() == 0
    assert [view.final(task.id)["state"] for task in tasks] == [TaskState.COMPLETED] * 2


def _connections(view: View) -> list[dict[str, str]]:
    return cast(list[dict[str, str]], view.redis.client_list(_type="normal"))
