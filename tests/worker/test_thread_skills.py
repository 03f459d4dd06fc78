"""Skills that are plain functions and generators: they block in threads of their own, and can be told to stop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from pydantic import BaseModel

from skillstream import Client
from skillstream_schemas.errors import Unpublishable
from skillstream_schemas.event import FinalEvent
from skillstream_schemas.state import TaskState
from skillstream_worker import Agent, Response, Retry, SyncTaskContext
from tests.client.bounds import soon, until
from tests.support.verbs import BOUND_S

from .conftest import StartWorker
from .view import View

AGENT = "threads"
GRACE_S = 0.2


class Book(BaseModel):
    """A structured piece of output."""

    title: str


@pytest.fixture
def agent() -> Agent:
    return Agent(AGENT)


async def _result(client: Client, skill: str, message: str = "", **options: Any) -> FinalEvent:
    return await (await client.submit(AGENT, skill, message, **options)).result(BOUND_S)


async def test_a_function_returns_what_an_async_one_may(agent: Agent, start_worker: StartWorker, client: Client) -> None:
    pieces = {
        "text": "done",
        "book": Book(title="Emma"),
        "response": Response(text="which?", status="input-required"),
        "none": None,
    }

    @agent.skill("plain")
    def plain(message: str, context: SyncTaskContext) -> Any:
        assert threading.current_thread() is not threading.main_thread()
        return pieces[message]

    await start_worker(agent)
    finals = {message: await _result(client, "plain", message) for message in pieces}
    assert (finals["text"].text, finals["none"].text) == ("done", "")
    assert finals["book"].data == {"title": "Emma"}
    assert (finals["response"].state, finals["response"].text) == (TaskState.INPUT_REQUIRED, "which?")


async def test_a_generator_streams_reports_counts_and_delegates(
    agent: Agent, start_worker: StartWorker, client: Client, view: View
) -> None:
    threads: set[int] = set()

    @agent.skill("double")
    def double(message: str, context: SyncTaskContext) -> str:
        return message * 2

    @agent.skill("stream")
    def stream(message: str, context: SyncTaskContext) -> Iterator[Any]:
        threads.add(threading.get_ident())
        yield Response(text="begun", status="working", progress=0.1)
        yield f"{context.payer}/{context.metadata['a']} "
        context.status("half", progress=0.5)
        context.usage(tokens=2)
        for event in context.delegate(AGENT, "double", message):
            if isinstance(event, FinalEvent):
                yield event.text
        threads.add(threading.get_ident())
        yield Response(metadata={"sources": 3})

    worker = await start_worker(agent)
    task = await client.submit(AGENT, "stream", "ü", payer="acme", metadata={"a": 1})
    final = await task.result(BOUND_S)
    assert (final.state, final.text, final.usage) == (TaskState.COMPLETED, "acme/1 üü", {"tokens": 2})
    assert view.metadata(task.id)["sources"] == 3
    assert view.shape(task.id)[:4] == ["submitted", "working", "status begun", "chunk acme/1 "]
    assert "status half" in view.shape(task.id)
    assert len(threads) == 1  # as libraries need it that keep things in a thread
    await until(lambda: not [thread for thread in threading.enumerate() if thread.name.startswith("skill ")])
    assert "strays=0" in repr(worker)


async def test_threads_run_beside_each_other(agent: Agent, start_worker: StartWorker, client: Client) -> None:
    together = threading.Barrier(20, timeout=BOUND_S)

    @agent.skill("meet")
    def meet(message: str, context: SyncTaskContext) -> str:
        together.wait()
        return message

    await start_worker(agent)
    tasks = [await client.submit(AGENT, "meet", str(n)) for n in range(20)]
    assert [(await task.result(BOUND_S)).text for task in tasks] == [str(n) for n in range(20)]


@pytest.mark.parametrize(
    ("error", "state", "code"),
    [
        (ValueError("no"), TaskState.FAILED, "skill_error"),
        (SystemExit(3), TaskState.FAILED, "skill_error"),
        (KeyboardInterrupt(), TaskState.FAILED, "skill_error"),
        (StopIteration(), TaskState.FAILED, "skill_error"),
        (asyncio.CancelledError(), TaskState.FAILED, "skill_error"),
        (Retry(0), TaskState.COMPLETED, None),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("skill", ["plain", "stream"])
async def test_what_a_thread_raises_is_the_skills(
    agent: Agent, start_worker: StartWorker, client: Client, error: BaseException, state: TaskState, code: str | None, skill: str
) -> None:
    def raise_first(context: SyncTaskContext) -> None:
        if context.attempt == 1:
            raise error

    @agent.skill("plain")
    def plain(message: str, context: SyncTaskContext) -> None:
        raise_first(context)

    @agent.skill("stream")
    def stream(message: str, context: SyncTaskContext) -> Iterator[str]:
        raise_first(context)
        yield "x"

    await start_worker(agent)
    final = await _result(client, skill)
    assert (final.state, final.error) == (state, code)


@pytest.mark.guarantee("G9")
@pytest.mark.parametrize("waits_for", ["event", "status", "child"])
async def test_a_thread_hears_that_it_is_to_end(
    agent: Agent, start_worker: StartWorker, client: Client, view: View, waits_for: str
) -> None:
    began, endings = threading.Event(), list[str]()

    @agent.skill("long")
    def long(message: str, context: SyncTaskContext) -> Iterator[str]:
        yield "kept"
        began.set()
        try:
            if waits_for == "child":
                for _ in context.delegate("nobody", "nothing", ""):
                    pass
            assert context.cancelled.wait(BOUND_S)
            if waits_for == "status":
                context.status("never shown")
            yield "never said"
        except BaseException as error:
            endings.append(type(error).__name__)
            raise
        finally:
            endings.append("closed")

    hand_card = Agent("nobody")
    hand_card.skill("nothing")(lambda message, context: None)
    worker = await start_worker(agent, cancel_grace_s=BOUND_S)
    view.redis.hset(view.keys.agents, "nobody", hand_card.card.model_dump_json())
    task = await client.submit(AGENT, "long", "")
    await until(began.is_set)
    if waits_for == "child":
        await until(lambda: view.queued("nobody") != [])
    final = await task.cancel("enough", timeout=BOUND_S)
    assert (final.state, final.text, final.reason) == (TaskState.CANCELED, "kept", "enough")
    assert endings == ["GeneratorExit" if waits_for == "event" else "CancelledError", "closed"]
    assert "strays=0" in repr(worker)
    for member in view.queued("nobody"):
        await client.task(member.partition(":")[2]).cancel()


@pytest.mark.guarantee("G9")
@pytest.mark.parametrize("skill", ["plain", "stream"])
async def test_a_thread_that_does_not_listen_is_left(
    agent: Agent, start_worker: StartWorker, client: Client, view: View, skill: str
) -> None:
    began, let_go, refused = threading.Event(), threading.Event(), list[str]()

    def hold(context: SyncTaskContext) -> None:
        began.set()
        let_go.wait(BOUND_S)
        for say in (partial(context.status, "after"), partial(context.usage, tokens=1)):
            try:
                say()
            except (Unpublishable, asyncio.CancelledError) as error:
                refused.append(type(error).__name__)

    @agent.skill("plain")
    def plain(message: str, context: SyncTaskContext) -> str:
        hold(context)
        return "too late"

    @agent.skill("stream")
    def stream(message: str, context: SyncTaskContext) -> Iterator[str]:
        yield "before"
        hold(context)
        yield "too late"

    worker = await start_worker(agent, cancel_grace_s=GRACE_S)
    task = await client.submit(AGENT, skill, "")
    await until(began.is_set)
    final = await task.cancel("enough", timeout=BOUND_S)
    assert (final.state, final.text) == (TaskState.CANCELED, "before" if skill == "stream" else "")
    assert "strays=1" in repr(worker)
    before = view.entries(task.id)
    let_go.set()
    await until(lambda: "strays=0" in repr(worker))
    assert view.entries(task.id) == before
    assert refused == ["CancelledError", "CancelledError"]


@pytest.mark.guarantee("G12")
async def test_a_thread_that_ends_well_when_told_to_stop_has_ended(
    agent: Agent, start_worker: StartWorker, client: Client, view: View
) -> None:
    began = threading.Event()

    @agent.skill("saves")
    def saves(message: str, context: SyncTaskContext) -> str:
        began.set()
        assert context.cancelled.wait(BOUND_S)
        return "saved"

    worker = await start_worker(agent, cancel_grace_s=BOUND_S)
    task = await client.submit(AGENT, "saves", "")
    await until(began.is_set)
    await soon(worker.stop(grace_s=0))
    assert (view.final(task.id)["state"], view.final(task.id)["text"]) == ("completed", "saved")
