"""Runs of workflows by themselves: order, routing, outputs, streaming, clean-up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any, cast

import pytest

from skillstream_schemas.workflow_errors import InvalidEvent, InvalidNodeOutput, InvalidWorkflow
from skillstream_worker.workflows import NodeConfig, RouterNode, StreamingNode, StreamItem, TaskContext
from skillstream_worker.workflows.concurrent_node import ConcurrentNode
from tests.client.bounds import BOUND_S, collected, soon, until

from .nodes import (
    RAISED,
    S1,
    S2,
    A,
    B,
    Boom,
    Both,
    Chooser,
    Left,
    Plain,
    Play,
    Right,
    Speaker,
    chain,
    gather,
    log,
    texts,
    workflow,
)

ROUTED = workflow(A, *chain(A, Chooser), NodeConfig(node=Chooser, connections=[Left, Right], is_router=True))
STREAMED = workflow(A, *chain(A, S1, B))
PAIR = workflow(Both, NodeConfig(node=Both, connections=[B], concurrent_nodes=[S1, S2]))


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    log.clear()
    RAISED.clear()
    yield
    RAISED.clear()


def says(**said: list[Any]) -> Play:
    return Play(says=said)


async def test_nodes_run_in_order_and_their_outputs_stand_in_the_context() -> None:
    context = await soon(STREAMED().run_async({"says": {"S1": ["x", "y"]}}))
    assert context.nodes == {"A": "out of A", "S1": "xy", "B": "out of B"}
    assert log.entries == ["A runs", "A cleaned", "S1 runs", "S1 closed", "S1 cleaned", "B runs", "B cleaned"]
    assert context.event.says == {"S1": ["x", "y"]}


def test_run_is_for_code_without_a_loop() -> None:
    assert STREAMED().run(says(S1=["x"])).nodes["S1"] == "x"


async def test_items_of_streaming_nodes_come_as_they_are() -> None:
    items = await collected(STREAMED().run_stream_async(says(S1=["x", {"n": 1}, "y"])))
    assert items == [S1().completion_chunk(content) for content in ("x", {"n": 1}, "y")]


async def test_items_come_while_the_node_runs_and_the_context_is_full_afterwards() -> None:
    context = TaskContext()
    items = STREAMED().run_stream_async(says(S1=["x", ["wait", "gate"], "y"]), context)
    assert texts([await soon(anext(items))]) == "x"
    assert "B runs" not in log.entries
    log.gate("gate").set()
    assert texts([item async for item in items]) == "y"
    assert list(context.nodes) == ["A", "S1", "B"]


async def test_structured_content_is_the_output_of_its_node() -> None:
    context = await soon(STREAMED().run_async(says(S1=[{"n": 1}, {"n": 2}])))
    assert context.nodes["S1"] == {"n": 2}
    context = await soon(STREAMED().run_async(says(S1=[{"n": 1}, [{"op": "add", "path": "/m", "value": 2}]])))
    assert context.nodes["S1"] == {"n": 1, "m": 2}


async def test_what_a_streaming_node_saved_itself_stays() -> None:
    class Saver(Speaker):
        async def process(self, task_context: TaskContext) -> AsyncIterator[dict[str, Any]]:
            yield self.completion_chunk("said")
            self.save_output("saved")

    assert (await soon(workflow(Saver)().run_async(Play()))).nodes == {"Saver": "saved"}


@pytest.mark.parametrize(("route", "ran"), [("Left", "Left"), ("Right", "Right"), ("none", None)])
async def test_a_router_chooses(route: str, ran: str | None) -> None:
    context = await soon(ROUTED().run_async(Play(route=route)))
    assert [name for name in context.nodes if name != "A"] == ([ran] if ran else [])


async def test_a_router_may_not_choose_what_is_no_connection() -> None:
    with pytest.raises(InvalidNodeOutput, match="Chooser chose"):
        await soon(ROUTED().run_async(Play(route="A")))


async def test_the_first_rule_that_chooses_counts_then_the_fallback() -> None:
    class Never(RouterNode):
        def determine_next_node(self, task_context: TaskContext) -> None:
            return None

    class OnRight(RouterNode):
        def determine_next_node(self, task_context: TaskContext) -> Plain | None:
            return Right() if task_context.event.route == "Right" else None

    class Rules(RouterNode):
        def __init__(self, task_context: TaskContext | None = None) -> None:
            super().__init__(task_context)
            self.routes = [Never(), OnRight()]
            self.fallback = Left()

    ruled = workflow(Rules, NodeConfig(node=Rules, connections=[Left, Right], is_router=True))
    assert list((await soon(ruled().run_async(Play(route="Right")))).nodes) == ["Right"]
    assert list((await soon(ruled().run_async(Play(route="x")))).nodes) == ["Left"]


async def test_a_node_can_end_the_workflow() -> None:
    class Stop(Plain):
        async def process(self, task_context: TaskContext) -> TaskContext:
            task_context.update_node("Stop", why="enough")
            task_context.update_node("Stop", more=1)
            task_context.stop_workflow()
            return task_context

    context = await soon(workflow(Stop, *chain(Stop, B))().run_async(Play()))
    assert context.nodes == {"Stop": {"why": "enough", "more": 1}}


async def test_a_run_goes_on_with_the_context_of_another() -> None:
    first = await soon(workflow(A)().run_async(Play()))
    second = await soon(workflow(B)().run_async(Play(), first))
    assert second is first
    assert list(second.nodes) == ["A", "B"]


@pytest.mark.parametrize("event", [{"says": 1}, {"route": None}, 5, None])
async def test_an_event_that_does_not_fit_is_refused(event: Any) -> None:
    with pytest.raises(InvalidEvent, match="Made: "):
        await soon(STREAMED().run_async(event))
    with pytest.raises(InvalidEvent):
        await collected(STREAMED().run_stream_async(event))


async def test_a_node_returns_the_context_and_nothing_else() -> None:
    class Forgets(Plain):
        async def process(self, task_context: TaskContext) -> Any:
            return None

    with pytest.raises(InvalidNodeOutput, match=r"Forgets.process returned NoneType"):
        await soon(workflow(Forgets)().run_async(Play()))


async def test_a_streaming_node_yields_chunks_and_nothing_else() -> None:
    class Bare(StreamingNode):
        async def process(self, task_context: TaskContext) -> AsyncIterator[Any]:
            yield "bare"

    with pytest.raises(InvalidNodeOutput, match="Bare yielded str"):
        await soon(workflow(Bare)().run_async(Play()))


async def test_an_error_comes_behind_what_was_said_and_the_clean_up() -> None:
    items: list[StreamItem] = []
    context = TaskContext()
    with pytest.raises(Boom, match="S1"):
        await soon(gather(STREAMED().run_stream_async(says(S1=["x", "y", ["raise", "Boom"]]), context), items))
    assert texts(items) == context.nodes["S1"] == "xy"
    assert log.entries[-2:] == ["S1 closed", "S1 cleaned"]


async def test_an_error_of_the_clean_up_does_not_hide_that_of_the_node() -> None:
    RAISED["A"] = KeyError("clean-up")
    with pytest.raises(Boom, match="A"):
        await soon(STREAMED().run_async(says(A=[["raise", "Boom"]])))
    with pytest.raises(KeyError, match="clean-up"):
        await soon(STREAMED().run_async(Play()))


async def test_an_exit_raised_in_a_node_is_raised_to_the_reader_and_the_loop_goes_on() -> None:
    with pytest.raises(SystemExit, match="S1"):
        await collected(STREAMED().run_stream_async(says(S1=[["raise", "SystemExit"]])))
    with pytest.raises(SystemExit, match="S2"):
        await collected(PAIR().run_stream_async(says(S2=[["raise", "SystemExit"]])))


async def test_a_reader_that_leaves_ends_the_nodes_and_waits_for_their_clean_up() -> None:
    items = STREAMED().run_stream_async(says(S1=["x", ["wait", "never"]]))
    async with aclosing(cast(Any, items)):
        await soon(anext(items))
    assert log.entries[-3:] == ["S1 waits", "S1 closed", "S1 cleaned"]


@pytest.mark.parametrize("made", [STREAMED, PAIR], ids=["in a row", "at once"])
async def test_a_reader_that_is_cancelled_ends_the_nodes(made: Any) -> None:
    reading = asyncio.create_task(collected(made().run_stream_async(says(S1=["x", ["wait", "never"]], S2=[["wait", "never"]]))))
    await until(lambda: "S1 waits" in log.entries)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(reading)
    assert log.entries.count("S1 closed") == log.entries.count("S1 cleaned") == 1
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize("made", [STREAMED, PAIR], ids=["in a row", "at once"])
async def test_a_cancellation_at_every_turn_leaves_nothing(made: Any) -> None:
    turn = ["turn"]
    event = says(
        A=[turn],
        S1=[turn, "x", turn, turn, "y", turn, ["open", "1"], "z", turn],
        S2=["x", ["wait", "1"], turn, "y"],
        B=[turn, turn],
    )
    turns, was_cancelled = 0, True
    while was_cancelled:
        log.clear()
        reading = asyncio.create_task(collected(made().run_stream_async(event)))
        for _ in range(turns):
            await asyncio.sleep(0)
        was_cancelled = reading.cancel()
        await asyncio.wait([reading], timeout=BOUND_S)
        for node in ("A", "S1", "S2", "B"):
            runs = log.entries.count(f"{node} runs")
            assert runs == log.entries.count(f"{node} cleaned") <= 1, f"after {turns} turns: {log.entries}"
        assert len(asyncio.all_tasks()) == 1, f"after {turns} turns"
        turns += 1
    assert turns > 8
    assert len(reading.result()) >= 3


async def test_a_node_that_swallows_its_cancellation_is_ended_with_its_next_item() -> None:
    class Stubborn(Speaker):
        async def process(self, task_context: TaskContext) -> AsyncIterator[StreamItem]:
            yield self.completion_chunk("x")
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                log.entries.append("swallowed")
            while True:
                yield self.completion_chunk("y")

    items = workflow(Stubborn)().run_stream_async(Play())
    async with aclosing(cast(Any, items)):
        await soon(anext(items))
    assert log.entries == ["swallowed", "Stubborn cleaned"]
    assert len(asyncio.all_tasks()) == 1


async def test_an_iterator_that_is_no_generator_streams_too() -> None:
    class Rest:
        def __init__(self, items: list[StreamItem]) -> None:
            self.items = items

        def __aiter__(self) -> Rest:
            return self

        async def __anext__(self) -> StreamItem:
            if not self.items:
                raise StopAsyncIteration
            return self.items.pop(0)

    class Handed(StreamingNode):
        def process(self, task_context: TaskContext) -> AsyncIterator[StreamItem]:
            return Rest([self.completion_chunk("a"), self.completion_chunk("b")])

    assert texts(await collected(workflow(Handed)().run_stream_async(Play()))) == "ab"


async def test_a_concurrent_node_by_itself_says_what_it_lacks() -> None:
    with pytest.raises(InvalidWorkflow, match="Both runs inside a workflow only"):
        await soon(Both().process(TaskContext()))


async def test_a_node_that_cancels_itself_cancels_the_run() -> None:
    class Gone(Plain):
        async def process(self, task_context: TaskContext) -> TaskContext:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await collected(workflow(Gone, *chain(Gone, S1))().run_stream_async(Play()))


async def test_nodes_at_once_stream_at_once_labelled() -> None:
    context = TaskContext()
    event = says(S1=["a", ["wait", "second"], "c", ["open", "third"]], S2=["b", ["open", "second"], ["wait", "third"], "d"])
    items = await collected(PAIR().run_stream_async(event, context))
    assert [(item["node"], item["choices"][0]["delta"].get("content")) for item in items] == [
        ("S1", "a"), ("S2", "b"), ("S1", "c"), ("S1", None), ("S2", "d"), ("S2", None),
    ]  # fmt: skip
    assert [item["choices"][0]["finish_reason"] for item in items] == [None, None, None, "stop", None, "stop"]
    assert "Both" not in context.nodes
    assert (context.nodes["S1"], context.nodes["S2"]) == ("ac", "bd")
    assert log.entries[-2:] == ["B runs", "B cleaned"]


async def test_the_first_of_several_that_fails_ends_the_others() -> None:
    items: list[StreamItem] = []
    with pytest.raises(Boom, match="S2"):
        await soon(gather(PAIR().run_stream_async(says(S1=["a", ["wait", "never"]], S2=["b", ["raise", "Boom"]])), items))
    assert (texts(items, "S1"), texts(items, "S2")) == ("a", "b")
    assert {"S1 closed", "S1 cleaned", "S2 closed", "S2 cleaned"} <= set(log.entries)
    assert "B runs" not in log.entries


async def test_concurrent_nodes_run_inside_one_another_and_beside_code_of_the_node() -> None:
    class Outer(ConcurrentNode):
        async def process(self, task_context: TaskContext) -> TaskContext:
            await self.execute_nodes_concurrently(task_context)
            self.save_output("joined")
            return task_context

    nested = workflow(Outer, NodeConfig(node=Outer, concurrent_nodes=[Both, A]), NodeConfig(node=Both, concurrent_nodes=[S1, S2]))
    context = TaskContext()
    items = await collected(nested().run_stream_async(says(S1=["a"], S2=["b"]), context))
    assert {item["node"] for item in items} == {"S1", "S2"}
    assert context.nodes == {"A": "out of A", "S1": "a", "S2": "b", "Outer": "joined"}


async def test_the_output_of_a_concurrent_node_is_that_of_its_plain_nodes() -> None:
    both = workflow(Both, NodeConfig(node=Both, concurrent_nodes=[B, S1, A]))
    context = await soon(both().run_async(says(S1=["a"], B=[["wait", "last"]], A=[["open", "last"]])))
    assert context.nodes["Both"] == {"B": "out of B", "A": "out of A"}
    assert list(context.nodes)[-1] == "Both"
