"""Newer attempts: who asks for them, what they keep, and when they end."""

from __future__ import annotations

import asyncio

import pytest

from skillstream import Client
from skillstream_schemas import keys as arq_keys
from skillstream_schemas.errors import TextReset
from skillstream_schemas.event import ResetEvent
from skillstream_schemas.settings import Settings
from skillstream_schemas.state import TaskState
from skillstream_worker import Agent, Worker
from tests.client.bounds import TRIES, collected, soon, until
from tests.client.hand_worker import HandWorker
from tests.support.verbs import AGENT, BOUND_S, Gates, verb_agent

from .conftest import Play, StartWorker
from .view import View

LONG_LEASE_S = 60
"""Longer than any wait here: an attempt that came by the end of a lease would come too late."""


async def test_a_skill_that_asks_for_another_attempt_gets_it(play: Play, view: View, worker: Worker) -> None:
    task = await play(["attempt", 1, ["say", "first"], ["retry", 0]], ["say", "second"])
    assert view.ids(task.id) == ["0-1", "1-1", "1-2", "1-3", "2-1", "2-2", "2-3"]
    assert view.shape(task.id)[2:] == ["chunk first", "retry", "working", "chunk second", "final completed"]
    assert view.final(task.id)["text"] == "second"
    assert [view.opening(task.id, attempt)["strikes"] for attempt in (1, 2)] == ["1", "2"]
    assert view.rings(task.id) == ["submitted", "opened", "opened", "final"]


@pytest.mark.parametrize("kind", ["ours", "arq"])
async def test_the_next_attempt_waits_for_its_delay(
    play: Play, view: View, start_worker: StartWorker, agent: Agent, kind: str
) -> None:
    await start_worker(agent, lease_s=LONG_LEASE_S)
    task = await play(["attempt", 1, ["retry", 0.4, kind]], ["say", "second"])
    entries = dict(view.entries(task.id))
    assert entries["1-2"]["handed_back"] == "retry"
    assert int(entries["2-1"]["at"]) - int(entries["1-2"]["at"]) >= 399


async def test_a_job_that_waits_for_its_next_attempt_is_delayed_on_the_queue(
    begin: Play, view: View, worker: Worker, settings: Settings
) -> None:
    task = await begin(["retry", 60])
    await until(lambda: view.shape(task.id)[-1] == "retry" and view.lease(task.id) is None)
    score = view.score(task.id)
    assert score is not None
    assert 55_000 < score - view.now_ms() <= 60_000
    member = arq_keys.job_id(AGENT, task.id)
    assert view.redis.pttl(arq_keys.job(member)) > settings.stream_ttl_s * 1000  # longer by the delay
    assert (await task.cancel("enough", timeout=BOUND_S)).reason == "enough"
    assert view.shape(task.id)[-2:] == ["working", "final canceled"]


@pytest.mark.guarantee("G14")
async def test_attempts_are_exhausted_by_retries(play: Play, view: View, start_worker: StartWorker, gates: Gates) -> None:
    await start_worker(verb_agent(gates, max_attempts=2), name="w7")
    task = await play(["say", "partial"], ["retry", 0])
    final = view.final(task.id)
    assert (final["state"], final["error"], final["text"]) == ("failed", "attempts_exhausted", "partial")
    assert "2 attempts were made" in final["reason"]
    assert "w7" in final["reason"]
    assert "Retry: the skill asked for another attempt" in final["reason"]
    assert [context.attempt for context in gates.contexts] == [1, 2]


@pytest.mark.guarantee("G1", "G14")
async def test_attempts_are_exhausted_by_lost_workers(
    begin: Play, view: View, agent: Agent, hand: HandWorker, start_worker: StartWorker, gates: Gates
) -> None:
    hand.announce(*agent.card.skills, agent=AGENT)
    task = await begin(["say", "never"])
    for attempt in (1, 2, 3):
        hand.open(task.id, attempt)
        hand.say(task.id, f"attempt {attempt}", attempt=attempt)
    await start_worker(agent)
    final = await task.result(BOUND_S)
    assert (final.state, final.error, final.text) == (TaskState.FAILED, "attempts_exhausted", "attempt 3")
    assert final.reason == "3 attempts were made; the last worker was w3"
    assert view.ids(task.id)[-2:] == ["4-1", "4-2"]
    assert view.opening(task.id, 4)["strikes"] == "3"
    assert gates.contexts == []
    await until(lambda: view.arq_keys_of(task.id) == [])


@pytest.mark.guarantee("G1")
async def test_the_task_of_a_lost_worker_is_run_again(
    begin: Play, view: View, agent: Agent, hand: HandWorker, start_worker: StartWorker, gates: Gates
) -> None:
    hand.announce(*agent.card.skills, agent=AGENT)
    task = await begin(["say", "whole"])
    hand.open(task.id)
    hand.say(task.id, "ha", "lf")
    await start_worker(agent)
    assert (await task.result(BOUND_S)).text == "whole"
    assert view.shape(task.id)[4:] == ["working", "chunk whole", "final completed"]
    assert view.opening(task.id, 2)["strikes"] == "2"
    assert gates.contexts[0].attempt == 2


@pytest.mark.guarantee("G4", "G10")
async def test_a_worker_that_vanishes_loses_its_task_within_the_lease(
    begin: Play, view: View, agent: Agent, start_worker: StartWorker, settings: Settings
) -> None:
    lease_s = 0.5
    took_ms: list[int] = []
    while not took_ms or (took_ms[-1] > (lease_s + 1) * 1000 and len(took_ms) < TRIES):
        lost = Vanishing([agent], settings.changed(lease_s=lease_s), name="lost")
        await lost.start()
        task = await begin(["attempt", 1, ["say", "half"], ["wait", "never"]], ["say", "whole"])
        await until(lambda: view.texts(task.id) == ["half"])  # noqa: B023 - looked at in this turn
        vanished_ms = view.now_ms()
        await lost.vanish()
        found = await start_worker(agent, lease_s=lease_s)
        assert (await task.result(BOUND_S)).text == "whole"
        took_ms.append(int(view.opening(task.id, 2)["at"]) - vanished_ms)
        await found.stop()
    assert took_ms[-1] <= (lease_s + 1) * 1000, took_ms


@pytest.mark.parametrize("name", ["ConnectionError", "ConnectionResetError"])
async def test_named_exceptions_start_another_attempt_with_backoff(
    play: Play, view: View, start_worker: StartWorker, gates: Gates, name: str
) -> None:
    await start_worker(verb_agent(gates, retry_on=(ConnectionError,)), lease_s=LONG_LEASE_S)
    task = await play(["attempt", 1, ["say", "a"], ["raise", name, "upstream"]], ["say", "b"])
    entries = dict(view.entries(task.id))
    assert entries["1-3"]["handed_back"] == "retry"
    assert view.final(task.id)["text"] == "b"
    assert int(entries["2-1"]["at"]) - int(entries["1-3"]["at"]) >= 249


async def test_other_exceptions_do_not(play: Play, view: View, start_worker: StartWorker, gates: Gates) -> None:
    await start_worker(verb_agent(gates, retry_on=(ConnectionError,)))
    task = await play(["raise", "ValueError", "mine"])
    assert view.final(task.id)["error"] == "skill_error"
    assert len(gates.contexts) == 1


async def test_a_skill_that_returns_may_ask_for_another_attempt(play: Play, view: View, worker: Worker) -> None:
    task = await play(["attempt", 1, ["retry", 0]], ["say", "second"], skill="plain")
    assert view.shape(task.id) == ["submitted", "working", "retry", "working", "final completed"]


@pytest.mark.guarantee("G5")
async def test_a_skill_that_resumes_goes_on_behind_its_text(
    begin: Play, view: View, start_worker: StartWorker, gates: Gates
) -> None:
    await start_worker(verb_agent(gates, on_retry="resume"))
    task = await begin(
        ["attempt", 1, ["say", "äb"], ["progress", "p"], ["say", "🦶"], ["retry", 0]],
        ["attempt", 2, ["say", "d"], ["retry", 0]],
        ["attempt", 3, ["say_partial"]],
    )
    final = await task.result(BOUND_S)
    assert final.text == "äb🦶d[äb🦶d]"
    assert [context.partial_text for context in gates.contexts] == ["", "äb🦶", "äb🦶d"]
    assert [view.opening(task.id, attempt).get("resume_from") for attempt in (1, 2, 3)] == [None, "3", "4"]
    assert "".join(await collected(task.text())) == final.text


@pytest.mark.guarantee("G5")
async def test_a_resumed_attempt_that_adds_nothing_keeps_the_text(
    play: Play, start_worker: StartWorker, gates: Gates, view: View
) -> None:
    await start_worker(verb_agent(gates, on_retry="resume"))
    task = await play(["attempt", 1, ["say", "kept"], ["retry", 0]], ["respond", {"text": "not this"}])
    assert (view.final(task.id)["text"], view.final(task.id)["chunks"]) == ("kept", "0")
    assert "".join(await collected(task.text())) == "kept"


async def test_resuming_with_nothing_said_begins_anew(play: Play, start_worker: StartWorker, gates: Gates, view: View) -> None:
    await start_worker(verb_agent(gates, on_retry="resume"))
    task = await play(["attempt", 1, ["retry", 0]], ["say", "x"])
    assert "resume_from" not in view.opening(task.id, 2)
    assert view.final(task.id)["text"] == "x"


async def test_a_lost_worker_of_a_resuming_skill(
    begin: Play, view: View, hand: HandWorker, start_worker: StartWorker, gates: Gates
) -> None:
    agent = verb_agent(gates, on_retry="resume")
    hand.announce(*agent.card.skills, agent=AGENT)
    task = await begin(["say_partial"])
    hand.open(task.id)
    hand.say(task.id, "of ", "the lost")
    await start_worker(agent)
    assert (await task.result(BOUND_S)).text == "of the lost[of the lost]"
    assert view.opening(task.id, 2)["resume_from"] == "11"


@pytest.mark.parametrize("verb", [["retry", 0], ["raise", "ConnectionError", "x"]])
async def test_a_skill_that_is_never_run_twice_fails_instead(
    play: Play, view: View, start_worker: StartWorker, gates: Gates, verb: list[object]
) -> None:
    await start_worker(verb_agent(gates, on_retry="fail", retry_on=(ConnectionError,)))
    task = await play(["say", "partial"], verb)
    final = view.final(task.id)
    assert (final["state"], final["error"], final["text"]) == ("failed", "skill_error", "partial")
    assert final["reason"].endswith("the skill is never run twice")
    assert len(gates.contexts) == 1


async def test_a_lost_worker_of_a_skill_that_is_never_run_twice(
    begin: Play, view: View, hand: HandWorker, start_worker: StartWorker, gates: Gates
) -> None:
    agent = verb_agent(gates, on_retry="fail")
    hand.announce(*agent.card.skills, agent=AGENT)
    task = await begin(["say", "never"])
    hand.open(task.id)
    hand.say(task.id, "half")
    await start_worker(agent)
    final = await task.result(BOUND_S)
    assert (final.state, final.error, final.text) == (TaskState.FAILED, "interrupted", "half")
    assert "w1" in str(final.reason)
    assert gates.contexts == []


@pytest.mark.guarantee("G3", "G5")
async def test_followers_never_mix_attempts(begin: Play, worker: Worker, gates: Gates, client: Client) -> None:
    task = await begin(
        ["attempt", 1, ["say", "wrong"], ["reach", "said"], ["wait", "retry"], ["retry", 0]], ["say", "ri"], ["say", "ght"]
    )
    events = asyncio.create_task(collected(task.events()))
    reading = asyncio.create_task(_read_text(client, task.id, gates))
    await gates.reached("said")
    await gates.reached("read")
    gates.open("retry")
    assert await soon(reading) == ("wrong", 0, "right")
    followed = await events
    (reset,) = [event for event in followed if isinstance(event, ResetEvent)]
    assert (reset.attempt, reset.keep) == (2, 0)
    assert (await task.result(BOUND_S)).text == "right"
    assert await _read_text(client, task.id, gates) == ("wrong", 0, "right")  # whoever comes late is told as well


async def test_a_reader_that_kept_enough_is_not_interrupted(begin: Play, gates: Gates, start_worker: StartWorker) -> None:
    await start_worker(verb_agent(gates, on_retry="resume"))
    task = await begin(["attempt", 1, ["say", "one "], ["reach", "said"], ["wait", "retry"], ["retry", 0]], ["say", "two"])
    reading = asyncio.create_task(collected(task.text()))
    await gates.reached("said")
    gates.open("retry")
    assert "".join(await reading) == "one two"


async def _read_text(client: Client, task_id: str, gates: Gates) -> tuple[str, int, str]:
    """Reads the text until it is taken back, then on from there."""
    task = client.task(task_id)
    before = ""
    try:
        async for piece in task.text():
            before += piece
            gates.open("read")
    except TextReset as reset:
        return before, reset.keep, "".join(await collected(task.text(after=reset.after)))
    return before, -1, ""


class Vanishing(Worker):
    """A worker that can be lost: all that it does stops at once and nothing is told to the broker."""

    async def vanish(self) -> None:
        """Breaks the connection first, so that nothing more is written, then ends what runs."""
        await self._broker.close()
        running = [*self._claiming, *self._attempts, *self._roles]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await self._client.close()
