"""Workflows as skills: through the broker, with everything that tasks have."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis

from skillstream import Client
from skillstream_schemas.event import ChunkEvent, FinalEvent, StatusEvent
from skillstream_schemas.settings import Settings
from skillstream_schemas.state import TaskState
from skillstream_worker import Agent, Response, Retry, Worker
from skillstream_worker.workflows import NodeConfig, OpenAIChatSchema, StreamItem, TaskContext, Workflow, apply_patch
from tests.client.bounds import BOUND_S, soon, until
from tests.worker.view import View

from .nodes import S1, S2, A, B, Boom, Both, Chooser, Left, Plain, Right, Speaker, chain, log, workflow


@pytest.fixture(autouse=True)
def _fresh() -> None:
    log.clear()


@pytest.fixture
def view(outside: redis.Redis, settings: Settings) -> View:
    return View(outside, settings)


class Player:
    """Responsible for running a workflow as the skill `play` of the agent `flow`, on a worker in this process."""

    def __init__(self, client: Client, settings: Settings) -> None:
        self.client, self._settings = client, settings
        self.agent = Agent("flow")
        self.worker = Worker([self.agent], settings)

    def takes(self, made: type[Workflow], **options: Any) -> None:
        """Registers it."""
        self.agent.skill("play", **options)(made().as_skill())

    async def plays(self, message: str = "{}", **options: Any) -> FinalEvent:
        """Submits and waits for the final."""
        task = await self.client.submit("flow", "play", message, **options)
        return await task.result(BOUND_S)


@pytest.fixture
async def player(client: Client, settings: Settings) -> AsyncIterator[Player]:
    made = Player(client, settings)
    yield made
    await made.worker.stop(grace_s=0)


async def started(player: Player, made: type[Workflow], **options: Any) -> Player:
    """With a workflow, and its worker running."""
    player.takes(made, **options)
    await player.worker.start()
    return player


STREAMED = workflow(A, *chain(A, S1))
PAIR = workflow(Both, NodeConfig(node=Both, concurrent_nodes=[S1, S2]))


async def test_text_of_a_node_becomes_chunks_and_the_text(player: Player, view: View) -> None:
    await started(player, STREAMED)
    final = await player.plays(json.dumps({"says": {"S1": ["one ", "two"]}}), task_id="t1")
    assert (final.state, final.text) == (TaskState.COMPLETED, "one two")
    assert "".join(view.texts("t1")) == "one two"
    assert final.data is None


async def test_data_is_the_event_before_the_message(player: Player) -> None:
    await started(player, STREAMED)
    assert (await player.plays("no JSON", data={"says": {"S1": ["x"]}})).text == "x"


@pytest.mark.parametrize("message", ["no JSON", "[1]", '{"says": 1}', "", "[" * 100_000])
async def test_an_event_that_does_not_fit_fails_the_task(message: str, player: Player) -> None:
    await started(player, STREAMED)
    final = await player.plays(message)
    assert (final.state, final.error) == (TaskState.FAILED, "skill_error")
    assert "InvalidEvent: invalid_event: Made: " in (final.reason or "")


async def test_structured_content_becomes_snapshots_and_patches_and_the_last_is_the_data(player: Player, view: View) -> None:
    await started(player, STREAMED)
    patch = [{"op": "replace", "path": "/n", "value": 2}]
    final = await player.plays(json.dumps({"says": {"S1": [{"n": 1}, patch]}}), task_id="t1")
    assert view.shape("t1")[2:] == ['snapshot {"n":1}', f"delta {json.dumps(patch, separators=(',', ':'))}",
                                    'snapshot {"n":2}', "final completed"]  # fmt: skip
    assert final.data == {"n": 2}


async def test_a_patch_too_large_for_an_entry_fails_the_task(player: Player) -> None:
    await started(player, STREAMED)
    patch = [{"op": "add", "path": "/n", "value": "x" * 70_000}]
    final = await player.plays(json.dumps({"says": {"S1": [{"n": 1}, patch]}}))
    assert final.error == "event_too_large"


async def test_the_output_of_the_last_node_is_the_result_where_nothing_streams(player: Player, view: View) -> None:
    await started(player, workflow(A, *chain(A, Chooser), NodeConfig(node=Chooser, connections=[Left, Right])))
    final = await player.plays('{"route": "Right"}', task_id="t1")
    assert (final.text, final.chunks) == ("out of Right", 0)
    assert view.shape("t1") == ["submitted", "working", "final completed"]


class Saves(Plain):
    """Saves the first thing that the event has for it."""

    async def process(self, task_context: TaskContext) -> TaskContext:
        output = task_context.event.says["Saves"][0]
        self.save_output(Response("asked back", "input-required", {"n": 1}) if output == "ask" else output)
        task_context.metadata["seen"] = True
        return task_context


@pytest.mark.parametrize(
    ("saved", "state", "text", "data", "metadata"),
    [
        ("text", "completed", "text", None, {"seen": True}),
        ({"n": 1}, "completed", "", {"n": 1}, {"seen": True}),
        ([1, 2], "completed", "", {"output": [1, 2]}, {"seen": True}),
        (None, "completed", "", None, {"seen": True}),
        ("ask", "input-required", "asked back", None, {"seen": True, "n": 1}),
    ],
)
async def test_results(saved: Any, state: str, text: str, data: Any, metadata: dict[str, Any], player: Player) -> None:
    await started(player, workflow(Saves))
    final = await player.plays(json.dumps({"says": {"Saves": [saved]}}))
    assert (final.state, final.text, final.data) == (state, text, data)
    assert {name: value for name, value in final.metadata.items() if not name.startswith("agent")} == metadata


async def test_values_that_are_no_json(player: Player) -> None:
    class Odd(Plain):
        async def process(self, task_context: TaskContext) -> TaskContext:
            where: dict[str, Any] = task_context.nodes if task_context.event.route == "output" else task_context.metadata
            where["at"] = object() if task_context.event.says else datetime(2031, 5, 1, tzinfo=UTC)
            return task_context

    await started(player, workflow(Odd))
    assert (await player.plays("{}")).metadata["at"] == "2031-05-01T00:00:00Z"
    assert (await player.plays('{"route": "output"}')).data == {"output": "2031-05-01T00:00:00Z"}
    for route, words in (("output", "the output of the last node is no JSON"), ("x", "metadata is no JSON")):
        final = await player.plays(json.dumps({"route": route, "says": {"x": []}}))
        assert final.error == "skill_error"
        assert f"invalid_node_output: {words}" in (final.reason or "")


async def test_a_plain_node_behind_a_stream_adds_data_and_metadata(player: Player) -> None:
    await started(player, workflow(S1, *chain(S1, Saves)))
    final = await player.plays(json.dumps({"says": {"S1": ["said"], "Saves": [{"n": 1}]}}))
    assert (final.text, final.data, final.metadata["seen"]) == ("said", {"n": 1}, True)


async def test_long_texts_of_nodes_at_once_fit(player: Player) -> None:
    await started(player, PAIR)
    final = await player.plays(json.dumps({"says": {"S1": ["x" * 100_000], "S2": ["y" * 100_000]}}))
    assert (final.state, len(final.text), final.data) == (TaskState.COMPLETED, 200_002, None)


async def test_nodes_at_once_are_told_apart_on_the_stream(player: Player, view: View, client: Client) -> None:
    await started(player, PAIR)
    said = {
        "S1": ["a1", ["open", "1"], ["wait", "2"], "a2", {"n": 1}, ["open", "3"]],
        "S2": [["wait", "1"], "b1", ["open", "2"], ["wait", "3"], "b2", {"m": 1}],
    }
    task = await client.submit("flow", "play", json.dumps({"says": said}))
    events = [event async for event in task.events()]
    statuses = [(event.text, event.metadata) for event in events if isinstance(event, StatusEvent) and event.text is not None]
    assert statuses == [
        ("S1", {"node": "S1"}), ("b1", {"node": "S2", "ahead": True}), ("S2", {"node": "S2"}),
    ] or statuses == [
        ("S1", {"node": "S1"}), ("b1", {"node": "S2", "ahead": True}), ("b2", {"node": "S2", "ahead": True}),
        ("S2", {"node": "S2"}),
    ]  # fmt: skip
    final = events[-1]
    assert isinstance(final, FinalEvent)
    assert final.text == "a1a2\n\nb1b2"
    assert final.data == {"S1": {"n": 1}, "S2": {"m": 1}}


async def test_what_nodes_said_stays_where_one_of_them_fails(player: Player) -> None:
    await started(player, PAIR)
    said = {"S1": ["a1", ["open", "1"], ["wait", "never"]], "S2": [["wait", "1"], "b1", ["raise", "Boom"]]}
    final = await player.plays(json.dumps({"says": said}))
    assert (final.state, final.error, final.reason) == (TaskState.FAILED, "skill_error", "Boom: S2")
    assert final.text == "a1\n\nb1"
    assert {"S1 cleaned", "S2 cleaned"} <= set(log.entries)


async def test_an_error_named_in_retry_on_starts_another_attempt(player: Player, view: View) -> None:
    class Flaky(Speaker):
        async def process(self, task_context: TaskContext) -> AsyncIterator[StreamItem]:
            assert task_context.skill is not None
            yield self.completion_chunk(f"attempt {task_context.skill.attempt}")
            if task_context.skill.attempt == 1:
                raise Boom("once")
            if task_context.skill.attempt == 2:
                raise Retry(delay=0)

    await started(player, workflow(Flaky), retry_on=(Boom,))
    final = await player.plays(task_id="t1")
    assert (final.state, final.text) == (TaskState.COMPLETED, "attempt 3")
    assert [word for word in view.shape("t1") if word == "retry"] == ["retry", "retry"]
    assert log.entries == ["Flaky cleaned"] * 3


async def test_a_cancellation_closes_the_nodes_and_keeps_the_text(player: Player, client: Client) -> None:
    await started(player, STREAMED)
    task = await client.submit("flow", "play", json.dumps({"says": {"S1": ["partial", ["wait", "never"]]}}))
    await until(lambda: "S1 waits" in log.entries)
    final = await soon(task.cancel("enough"))
    assert (final.state, final.text, final.reason) == (TaskState.CANCELED, "partial", "enough")
    assert log.entries[-2:] == ["S1 closed", "S1 cleaned"]


@pytest.mark.parametrize(
    ("options", "deadline", "error"), [({"timeout": 0.5}, None, "timeout"), ({}, timedelta(seconds=1.5), "deadline_exceeded")]
)
async def test_time_that_ran_out(options: dict[str, Any], deadline: timedelta | None, error: str, player: Player) -> None:
    await started(player, STREAMED, **options)
    said = {"says": {"S1": ["partial", ["wait", "never"]]}}
    final = await player.plays(json.dumps(said), deadline=deadline)
    assert (final.state, final.error, final.text) == (TaskState.FAILED, error, "partial")
    assert log.entries[-2:] == ["S1 closed", "S1 cleaned"]


async def test_an_exit_in_a_node_fails_its_task_and_the_worker_goes_on(player: Player) -> None:
    await started(player, PAIR)
    final = await player.plays(json.dumps({"says": {"S1": ["a"], "S2": [["raise", "SystemExit"]]}}))
    assert (final.error, final.reason) == ("skill_error", "SystemExit: S2")
    assert (await player.plays(json.dumps({"says": {"S1": ["a"]}}))).text == "a"


async def test_history_becomes_the_chat_of_the_event(player: Player) -> None:
    class Echo(Speaker):
        async def process(self, task_context: TaskContext) -> AsyncIterator[StreamItem]:
            event: OpenAIChatSchema = task_context.event
            yield self.completion_chunk(" | ".join(f"{message.role}: {message.content}" for message in event.messages))

    await started(player, workflow(Echo, event=OpenAIChatSchema))
    conversation = player.client.conversation("flow")
    first = await (await conversation.submit("play", "hello")).result(BOUND_S)
    second = await (await conversation.submit("play", "again")).result(BOUND_S)
    assert first.text == "user: hello"
    assert second.text == "user: hello | assistant: user: hello | user: again"


async def test_a_node_delegates_reports_and_counts(player: Player, view: View) -> None:
    helper = Agent("helper")

    @helper.skill("shout")
    async def shout(message: str, context: Any) -> str:
        return message.upper()

    class Asks(Speaker):
        async def process(self, task_context: TaskContext) -> AsyncIterator[StreamItem]:
            skill = task_context.skill
            assert skill is not None
            await skill.status("asking", progress=0.5)
            async for event in skill.delegate("helper", "shout", "quiet"):
                if isinstance(event, FinalEvent):
                    yield self.completion_chunk(event.text)
            skill.usage(input_tokens=3)

    player.takes(workflow(Asks))
    worker = Worker([player.agent, helper], player.worker.settings)
    async with worker:
        final = await player.plays(task_id="t1")
    assert (final.text, final.usage) == ("QUIET", {"input_tokens": 3})
    assert view.shape("t1")[2:] == ["status asking", "chunk QUIET", "final completed"]


async def test_a_follower_rebuilds_the_data_from_snapshots_and_patches(player: Player, client: Client) -> None:
    await started(player, STREAMED)
    steps: list[Any] = [{"list": []}, *([{"op": "add", "path": "/list/-", "value": number}] for number in range(20))]
    task = await client.submit("flow", "play", json.dumps({"says": {"S1": steps}}))
    data: Any = None
    async for event in task.events():
        if isinstance(event, ChunkEvent):
            data = apply_patch(data, event.data) if event.mode == "delta" else event.data  # type: ignore[arg-type]
    assert data == {"list": list(range(20))} == (await task.result(BOUND_S)).data


async def test_the_card_says_that_it_streams(player: Player) -> None:
    player.takes(STREAMED, price_usd="0.05")
    assert (player.agent.card.skills[0].streaming, player.agent.card.skills[0].price_micros) == (True, 50_000)
    assert B.node_name == "B"
