"""docs/skills.md and docs/client.md name all that is public, as it is called, and their code runs."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

import skillstream
from skillstream import (
    ChunkEvent,
    Client,
    Conversation,
    FinalEvent,
    NotAllSubmitted,
    Order,
    ResetEvent,
    Settings,
    StatusEvent,
    SyncClient,
    SyncTask,
    Task,
)
from skillstream_schemas.errors import FailureCode
from skillstream_worker import Agent, Chunking, Response, Retry, SyncTaskContext, TaskContext, Worker

from .support.documentation import block, blocks, called, code, names, table, value

SKILLS, CLIENT = "docs/skills.md", "docs/client.md"
BOUND_S = 10.0
EVENT_FIELDS = {"type", "id", "at"}
"""Said of all events at once."""


def public(kind: type[Any], *hidden: str) -> set[str]:
    """Public names that a class defines, inherited ones of ours too."""
    own = (base for base in kind.__mro__ if base.__module__.startswith("skillstream"))
    return {name for base in own for name in vars(base) if not name.startswith("_")} - set(hidden)


def attributes(kind: type[Any]) -> set[str]:
    """Public names that instances get when they are made."""
    own = (base for base in kind.__mro__ if base.__module__.startswith("skillstream"))
    text = "".join(inspect.getsource(vars(base)["__init__"]) for base in own if "__init__" in vars(base))
    return {word.removeprefix("self.") for word in text.replace(":", " ").replace(",", " ").split() if word.startswith("self.")}


def settable(kind: type[Any]) -> set[str]:
    return {name for name in attributes(kind) if name.isidentifier() and not name.startswith("_")}


@pytest.mark.parametrize(
    ("page", "head", "number", "function"),
    [
        (SKILLS, "argument", 0, Agent.__init__),
        (SKILLS, "argument", 1, Agent("a").skill),
        (SKILLS, "field", 0, Response),
        (SKILLS, "of `Retry`", 0, Retry.__init__),
        (SKILLS, "of `Chunking`", 0, Chunking),
        (CLIENT, "argument of `Client`", 0, Client.__init__),
        (CLIENT, "argument", 0, Client.submit),
    ],
)
def test_every_argument_stands_with_its_default(page: str, head: str, number: int, function: Callable[..., Any]) -> None:
    said = {name: row[1] for row in table(page, head, number) for name in code(row[0])}
    parameters = {name: value(one) for name, one in inspect.signature(function).parameters.items() if name != "self"}
    assert {name: text.strip("`") for name, text in said.items()} == parameters


def settings_of_the_page() -> dict[str, str]:
    rows = table(CLIENT, "setting and variable")
    fields = [[name for name in code(row[0]) if name.islower()] for row in rows]
    return {
        name: text for row, some in zip(rows, fields, strict=True) for name, text in zip(some, row[1].split(", "), strict=True)
    }


def test_settings_stand_with_variable_and_default() -> None:
    said = settings_of_the_page()
    assert said
    defaults = Settings()
    for name, text in said.items():
        assert text.strip("`") == format(getattr(defaults, name), "g" if isinstance(getattr(defaults, name), float) else "")
    variables = {name for row in table(CLIENT, "setting and variable") for name in code(row[0]) if name.isupper()}
    assert variables == {f"SKILLSTREAM_{name.upper()}" for name in said} <= set(Settings.variables())


@pytest.mark.parametrize(
    ("page", "kind", "known"),
    [
        (SKILLS, TaskContext, public(TaskContext) | settable(TaskContext)),
        (SKILLS, SyncTaskContext, {"check"}),
        (CLIENT, Client, public(Client)),
        (CLIENT, Task, public(Task) | settable(Task)),
        (CLIENT, Conversation, public(Conversation) | settable(Conversation)),
        (CLIENT, StatusEvent, set(StatusEvent.model_fields) - EVENT_FIELDS),
        (CLIENT, ChunkEvent, set(ChunkEvent.model_fields) - EVENT_FIELDS),
        (CLIENT, FinalEvent, set(FinalEvent.model_fields) - EVENT_FIELDS),
        (CLIENT, ResetEvent, set(ResetEvent.model_fields) - EVENT_FIELDS),
    ],
)
def test_a_page_names_all_that_a_class_has_and_nothing_else(page: str, kind: type[Any], known: set[str]) -> None:
    assert {name for name in names(table(page, f"of `{kind.__name__}`")) if name not in ("async", "await")} == known


@pytest.mark.parametrize("kind", [TaskContext, SyncTaskContext, Client, Task, Conversation])
def test_methods_are_called_as_the_page_says(kind: type[Any]) -> None:
    page = SKILLS if kind in (TaskContext, SyncTaskContext) else CLIENT
    shown = [text for row in table(page, f"of `{kind.__name__}`") for text in code(row[0])]
    calls = [text.rpartition(" in ")[2].removeprefix("await ").replace("'", '"') for text in shown if "(" in text]
    for call in calls:
        if "…" not in call:
            assert call == called(getattr(kind, call.partition("(")[0]))


def test_what_a_thread_is_given_is_what_the_page_says_of_it() -> None:
    """`SyncTaskContext` has all that `TaskContext` has, but `counted`, and `check`; `cancel` is its thread's."""
    sync = public(SyncTaskContext, "cancel") | settable(SyncTaskContext)
    assert sync == (public(TaskContext) | settable(TaskContext)) - {"counted"} | {"check"}
    for name in ("status", "patch", "usage", "delegate"):
        assert called(getattr(SyncTaskContext, name)) == called(getattr(TaskContext, name))


def test_the_clients_without_asyncio_have_what_the_page_says() -> None:
    assert public(SyncClient) == {"submit", "submit_many", "task", "agents", "close"}
    assert public(SyncTask) | settable(SyncTask) == {"id", "stream", "events", "text", "result", "cancel"}
    for name in ("events", "text", "result", "cancel"):
        assert called(getattr(SyncTask, name)) == called(getattr(Task, name))
    assert called(SyncClient) == "SyncClient(url=None, settings=None)"


def test_an_order_has_what_the_page_says() -> None:
    assert set(Order._fields) == {name for row in table(CLIENT, "argument") for name in code(row[0])} - {"durable"}


def test_errors_that_are_named_can_be_caught() -> None:
    """Those of the client's page are imported as it says; what a skill fails with are codes that there are."""
    named = {name for row in table(CLIENT, "call") for name in code(row[1])}
    assert named
    for name in named:
        assert issubclass(getattr(skillstream, name), skillstream.SkillstreamError)
    codes = {text for row in table(SKILLS, "what happened") + table(SKILLS, "what") for cell in row for text in code(cell)}
    failures = {text for text in codes if "_" in text and "." not in text} - {"max_attempts"}
    assert failures
    assert failures <= set(FailureCode)


async def test_orders_that_were_not_taken_are_sent_again_under_their_ids(server_url: str) -> None:
    asked: list[list[Order]] = []

    class HalfTaken:
        task = staticmethod(str)

        async def submit_many(self, orders: list[Order]) -> None:
            asked.append(orders)
            if len(asked) == 1:
                raise NotAllSubmitted(["a", "b"], {1: skillstream.BrokerUnavailable()})

    assert await run_page(CLIENT, server_url)["submit_all"](HalfTaken(), ["ebb", "flow"]) == ["a", "b"]
    assert asked[1] == [Order("researcher", "research", "flow", payer="acme", task_id="b")]


@pytest.fixture
def agent() -> Agent:
    """README's agent."""
    found: dict[str, Any] = {"__name__": "hello"}
    exec(block("README.md", 'Agent(name="researcher"'), found)
    return found["agent"]  # type: ignore[no-any-return]


def run_page(page: str, server_url: str, **given: Any) -> dict[str, Any]:
    """The names that a page's code makes, on the test's server."""
    for text in blocks(page):
        exec(text.replace("redis://localhost", server_url), given)
    return given


@pytest.fixture
async def researcher(settings: Settings, agent: Agent) -> AsyncIterator[None]:
    async with Worker([agent], settings):
        yield


async def test_the_tests_of_the_skills_page_pass(
    settings: Settings, server_url: str, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = run_page(SKILLS, server_url, agent=agent, research=agent.skills["research"].function)
    await page["test_it_counts_what_it_found"]()
    monkeypatch.setenv("TEST_REDIS_URL", server_url)
    await page["test_a_task_completes"]()


async def test_the_skill_that_resumes_does(client: Client, settings: Settings, server_url: str, agent: Agent) -> None:
    run_page(SKILLS, server_url, agent=agent, research=None)
    async with Worker([agent], settings):
        task = await client.submit("researcher", "count", "x")
        final = await task.result(BOUND_S)
        resets = [event async for event in task.events() if isinstance(event, ResetEvent)]
    assert (final.text, resets) == ("0\n1\n2\n", [ResetEvent(attempt=2, keep=2)])


@pytest.mark.usefixtures("researcher")
async def test_the_code_of_the_clients_page_runs(
    client: Client, settings: Settings, server_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SKILLSTREAM_SHARDS", str(settings.shards))
    page = run_page(CLIENT, server_url)
    await asyncio.wait_for(page["main"](), BOUND_S)
    assert capsys.readouterr().out.startswith("completed # tides\n")
    assert await asyncio.wait_for(page["talk"](client), BOUND_S) == "2 messages before this one."
    tasks = await asyncio.wait_for(page["submit_all"](client, ["ebb", "flow"]), BOUND_S)
    texts = [(await task.result(BOUND_S)).text for task in tasks]
    assert [text.splitlines()[0] for text in texts] == ["# ebb", "# flow"]
    final = await asyncio.wait_for(asyncio.to_thread(page["report"]), BOUND_S)
    assert final.text == capsys.readouterr().out


async def test_readers_of_the_clients_page_follow_text_that_is_taken_back(
    client: Client, settings: Settings, server_url: str
) -> None:
    page = run_page(CLIENT, server_url)
    agent = Agent("wavering")

    @agent.skill("say", chunking=Chunking.off())
    async def say(message: str, context: TaskContext) -> AsyncIterator[str]:
        yield "high "
        yield "tide" if context.attempt > 1 else "tied"
        if context.attempt == 1:
            raise Retry(delay=0)

    async with Worker([agent], settings):
        task = await client.submit("wavering", "say", "x")
        assert (await task.result(BOUND_S)).state == "completed"
    assert await page["read_text"](task) == "high tide"
    top = await page["read_on"](client, task.id, "0", "")
    assert top == ("2-4", "high tide")
    assert await page["read_on"](client, task.id, "1-2", "high ") == top
    assert await page["read_on"](client, task.id, "2-2", "high ") == top
