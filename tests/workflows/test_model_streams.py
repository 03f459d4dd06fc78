"""Agent nodes over pydantic-ai: text and structured output as they grow, failures, usage, history, models."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from itertools import pairwise
from typing import Any, cast

import pytest
from pydantic import Field
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel

from skillstream_schemas.workflow_errors import ModelUnavailable
from skillstream_worker.workflows import (
    AgentConfig,
    AgentNode,
    AgentStreamingNode,
    ModelProvider,
    OpenAIChatSchema,
    StreamItem,
    TaskContext,
    apply_patch,
    replace_models,
)
from skillstream_worker.workflows.models import AgentShelf
from tests.client.bounds import collected, soon, until
from tests.support.processes import ROOT, START_S

from .nodes import gather, texts, workflow

ASKED = {"messages": [{"role": "user", "content": "go on"}]}
DOCUMENT = {"thinking": "first this, then that", "reply": "so it is", "points": ["one", "two"]}

Say = Callable[[list[ModelMessage], AgentInfo], AsyncIterator[Any]]


class Text(AgentStreamingNode):
    debounce_by: float | None = None
    cleaned = 0

    def get_agent_config(self) -> AgentConfig:
        return AgentConfig(model_provider=ModelProvider.OPENAI, model_name="none")

    async def process(self, task_context: TaskContext) -> AsyncIterator[StreamItem]:
        async with self.agent.run_stream("x", message_history=self.message_history()) as result:
            async for chunk in self.stream_text_deltas(result, debounce_by=self.debounce_by):
                yield chunk

    async def cleanup(self) -> None:
        Text.cleaned += 1


class Merged(Text):
    debounce_by = 1.0
    """More than the model takes for all that it says, also on a busy machine; its end cuts this short."""


class Structured(AgentStreamingNode):
    as_patch = False

    class OutputType(AgentStreamingNode.OutputType):
        thinking: str
        reply: str
        points: list[str] = Field(default_factory=list)
        mood: str = "calm"

    def get_agent_config(self) -> AgentConfig:
        return AgentConfig(model_provider=ModelProvider.OPENAI, model_name="none", output_type=self.OutputType)

    async def process(self, task_context: TaskContext) -> AsyncIterator[StreamItem]:
        async with self.agent.run_stream("x") as result:
            async for chunk in self.stream_structured_deltas(result, debounce_by=None, as_patch=self.as_patch):
                yield chunk


class Patched(Structured):
    as_patch = True


class Asks(AgentNode):
    def get_agent_config(self) -> AgentConfig:
        return AgentConfig(model_provider=ModelProvider.OPENAI, model_name="none", instructions="Be short.")

    async def process(self, task_context: TaskContext) -> TaskContext:
        result = await self.agent.run(task_context.event.get_message())
        self.count_usage(result.usage)
        self.save_output(result.output)
        return task_context


@pytest.fixture
def model() -> Iterator[Callable[[Say], None]]:
    """Sets what every model says."""
    undo: list[Callable[[], None]] = []

    def says(say: Say) -> None:
        undo.append(replace_models(lambda config: FunctionModel(stream_function=cast(Any, say))))

    yield says
    for restore in reversed(undo):
        restore()


def pieces(*texts: str, error: Exception | None = None, gate: asyncio.Event | None = None) -> Say:
    """A model that says these pieces, then waits at the gate, then fails."""

    async def say(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        for text in texts:
            yield text
        if gate is not None:
            await gate.wait()
        if error is not None:
            raise error

    return say


def structured(document: dict[str, Any], upto: int | None = None) -> Say:
    """A model that fills in a document, four characters a piece; up to so many, then it fails."""

    async def say(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        arguments = json.dumps(document)
        yield {0: DeltaToolCall(name=info.output_tools[0].name)}
        for start in range(0, len(arguments), 4):
            if upto is not None and start >= upto:
                raise ConnectionError("cut")
            yield {0: DeltaToolCall(json_args=arguments[start : start + 4])}

    return say


async def test_without_debounce_each_piece_is_a_chunk(model: Callable[[Say], None]) -> None:
    model(pieces("Tides ", "", "come", " and go"))
    context = TaskContext()
    items = await collected(workflow(Text, event=OpenAIChatSchema)().run_stream_async(ASKED, context))
    assert items == [Text.completion_chunk(cast(Any, None), text) for text in ("Tides ", "come", " and go")]
    assert items[0] == {
        "object": "chat.completion.chunk",
        "model": "default",
        "choices": [{"index": 0, "delta": {"role": "assistant", "content": "Tides "}, "finish_reason": None}],
    }
    assert context.nodes == {"Text": "Tides come and go"}


async def test_debounce_says_the_first_piece_at_once_and_others_together(model: Callable[[Say], None]) -> None:
    words = [f"w{number} " for number in range(200)]
    model(pieces(*words))
    items = await collected(workflow(Merged, event=OpenAIChatSchema)().run_stream_async(ASKED))
    assert texts(items) == "".join(words)
    assert len(items) < 5


@pytest.mark.parametrize("node", [Text, Merged])
async def test_what_a_model_said_before_it_failed_is_said(node: type[Text], model: Callable[[Say], None]) -> None:
    words = [f"w{number} " for number in range(50)]
    model(pieces(*words, error=ConnectionError("cut")))
    items: list[StreamItem] = []
    with pytest.raises(ConnectionError, match="cut"):
        await soon(gather(workflow(node, event=OpenAIChatSchema)().run_stream_async(ASKED), items))
    assert texts(items) == "".join(words)


async def test_a_reader_that_leaves_ends_the_model(model: Callable[[Say], None]) -> None:
    closed, never = [], asyncio.Event()

    async def say(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        try:
            yield "a"
            await never.wait()
        finally:
            closed.append(True)

    model(say)
    for node in (Text, Merged):
        before = Text.cleaned
        items = workflow(node, event=OpenAIChatSchema)().run_stream_async(ASKED)
        async with aclosing(cast(Any, items)):
            await soon(anext(items))
        assert Text.cleaned == before + 1
    await until(lambda: len(closed) == 2)
    await until(lambda: len(asyncio.all_tasks()) == 1)


async def test_structured_output_grows_in_snapshots_and_ends_validated(model: Callable[[Say], None]) -> None:
    model(structured(DOCUMENT))
    context = TaskContext()
    items = await collected(workflow(Structured, event=OpenAIChatSchema)().run_stream_async(ASKED, context))
    contents = [item["choices"][0]["delta"]["content"] for item in items]
    assert contents[-1] == {**DOCUMENT, "mood": "calm"}
    assert len(contents) > 5
    assert all(before != after for before, after in pairwise(contents))
    assert all(contents[-1]["reply"].startswith(content["reply"]) for content in contents)
    assert context.nodes["Structured"] == Structured.OutputType.model_validate(DOCUMENT)


async def test_patches_amount_to_the_same(model: Callable[[Say], None]) -> None:
    model(structured(DOCUMENT))
    context = TaskContext()
    items = await collected(workflow(Patched, event=OpenAIChatSchema)().run_stream_async(ASKED, context))
    first, *patches = (item["choices"][0]["delta"]["content"] for item in items)
    whole = first
    for patch in patches:
        assert isinstance(patch, list)
        whole = apply_patch(whole, patch)
    assert whole == {**DOCUMENT, "mood": "calm"} == context.nodes["Patched"].model_dump()


async def test_structured_output_of_a_model_that_fails_is_said_as_far_as_it_got(model: Callable[[Say], None]) -> None:
    model(structured(DOCUMENT, upto=48))
    items: list[StreamItem] = []
    with pytest.raises(ConnectionError, match="cut"):
        await soon(gather(workflow(Structured, event=OpenAIChatSchema)().run_stream_async(ASKED), items))
    assert items[-1]["choices"][0]["delta"]["content"]["thinking"] == DOCUMENT["thinking"]


async def test_history_reaches_the_model(model: Callable[[Say], None]) -> None:
    seen: list[str] = []

    async def say(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        seen.extend(f"{part.part_kind} {part.content}" for message in messages for part in cast(Any, message).parts)
        yield "ok"

    model(say)
    turns = [{"role": "system", "content": "s"}, {"role": "user", "content": "q1"}, {"role": "assistant", "content": "a1"}]
    await collected(workflow(Text, event=OpenAIChatSchema)().run_stream_async({"messages": [*turns, *ASKED["messages"]]}))
    assert seen == ["user-prompt q1", "text a1", "user-prompt x"]


async def test_a_plain_agent_node_and_an_agent_that_is_made_once() -> None:
    made: list[AgentConfig] = []

    def choose(config: AgentConfig) -> TestModel:
        made.append(config)
        return TestModel(custom_output_text="done")

    restore = replace_models(choose)
    try:
        for _ in range(3):
            context = await soon(workflow(Asks, event=OpenAIChatSchema)().run_async(ASKED))
            assert context.nodes == {"Asks": "done"}
    finally:
        restore()
    assert [config.instructions for config in made] == ["Be short."]


async def test_a_model_that_cannot_be_had_is_a_coded_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ModelUnavailable, match="openai:none"):
        await soon(workflow(Asks, event=OpenAIChatSchema)().run_async(ASKED))


async def test_a_traced_run_has_a_span_for_itself_its_nodes_and_the_model() -> None:
    # in a process of its own: a process has one tracer provider for good
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "tests.workflows.traced_run", stdout=PIPE, cwd=ROOT)
    async with asyncio.timeout(START_S):
        output, _ = await process.communicate()
    told = json.loads(output)
    parents = {span["name"]: span["parent"] for span in told["spans"]}
    assert {"MyStreamingWorkflow", "CleanNode", "BothNode", "ShortNode", "LongNode", "CountNode"} <= set(parents)
    assert parents["MyStreamingWorkflow"] is None
    assert (parents["CleanNode"], parents["BothNode"]) == ("MyStreamingWorkflow", "MyStreamingWorkflow")
    assert (parents["ShortNode"], parents["LongNode"]) == ("BothNode", "BothNode")
    assert {parents[name] for name in parents if "agent" in name} <= {"ShortNode", "LongNode"}
    assert any("agent" in name for name in parents), "and those of pydantic-ai"
    assert {span["trace_id"] for span in told["spans"]} == {told["trace_id"]}
    assert told["asked"] == "0af7651916cd43dd8448eb211c80319c"


async def test_a_traced_run_that_nobody_records_has_no_trace_id(model: Callable[[Say], None]) -> None:
    model(pieces("a"))
    context = await soon(workflow(Text, event=OpenAIChatSchema)(enable_tracing=True).run_async(ASKED))
    assert context.trace_id is None


@pytest.mark.parametrize("provider", ModelProvider)
def test_every_provider_is_known_to_pydantic_ai(provider: ModelProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.endswith(("_API_KEY", "_ENDPOINT", "_BASE_URL"))]:
        monkeypatch.delenv(name)
    problem = ""
    try:
        AgentShelf().agent(AgentConfig(model_provider=provider, model_name="none"), traced=False)
    except ModelUnavailable as error:  # its package or key is missing here
        problem = str(error)
    assert "Unknown model" not in problem


class TestChatEvent:
    def test_the_last_message_is_the_users(self) -> None:
        with pytest.raises(ValueError, match="not the user's"):
            OpenAIChatSchema.model_validate({"messages": [{"role": "assistant", "content": "x"}]})

    def test_content_may_come_in_parts(self) -> None:
        content = [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}}, {"type": "text", "text": "b"}]
        event = OpenAIChatSchema.model_validate({"messages": [{"role": "user", "content": content}], "stream": True})
        assert (event.get_message(), event.model) == ("ab", "default")

    def test_a_task_becomes_an_event(self) -> None:
        event = OpenAIChatSchema.from_message("now", [{"role": "user", "text": "q"}, {"role": "agent", "text": "a"}])
        assert [(message.role, message.content) for message in event.messages] == [
            ("user", "q"), ("assistant", "a"), ("user", "now"),
        ]  # fmt: skip
