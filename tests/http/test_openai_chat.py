"""Chat completions with OpenAI's own client: whole, streamed, through its helpers, cut short, gone wrong."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from typing import Any

import httpx
import pytest
import redis
from openai import APIError, APIStatusError, AsyncOpenAI, ConflictError, InternalServerError
from openai.types.chat import ChatCompletionChunk
from pydantic import BaseModel

from skillstream_router.app import Router
from skillstream_schemas.settings import Settings
from skillstream_worker import Worker
from tests.client.hand_worker import HandWorker
from tests.router.eventually import eventually
from tests.support.verbs import Gates, script

from .conftest import PATIENCE_S, StartGateway
from .openai_clients import MODEL, blocking_client, body_of, openai_client, says
from .sse import read_all

HAND = "echo/say"
HELLO: list[Any] = [{"role": "user", "content": "hi"}]


async def chunks_of(client: AsyncOpenAI, messages: list[Any], model: str = MODEL, **more: Any) -> list[ChatCompletionChunk]:
    stream: Any = await client.chat.completions.create(model=model, messages=messages, stream=True, **more)
    return [chunk async for chunk in stream]


def text_of(chunks: list[ChatCompletionChunk]) -> str:
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)


async def test_a_whole_completion(gateway: Router, worker: Worker) -> None:
    async with openai_client(gateway) as client:
        raw = await client.chat.completions.with_raw_response.create(
            model=MODEL, messages=says(["say", "one "], ["say", "two"], ["usage", {"input_tokens": 7, "output_tokens": 2}])
        )
        told = raw.parse()
    assert told.id == f"chatcmpl-{raw.headers['x-task-id']}"
    assert (told.object, told.model, told.created > 1_700_000_000) == ("chat.completion", MODEL, True)
    choice = told.choices[0]
    assert (choice.message.role, choice.message.content, choice.finish_reason) == ("assistant", "one two", "stop")
    assert told.usage is not None
    assert (told.usage.prompt_tokens, told.usage.completion_tokens, told.usage.total_tokens) == (7, 2, 9)


async def test_a_streamed_completion(gateway: Router, worker: Worker) -> None:
    odd = 'ü\n\r\u2028\x85\x00 \U0001f600"\\'
    async with openai_client(gateway) as client:
        chunks = await chunks_of(client, says(["say", "one "], ["progress", "thinking", 0.5], ["say", odd]))
    assert len({(chunk.id, chunk.created, chunk.model, chunk.object) for chunk in chunks}) == 1
    assert chunks[0].choices[0].delta.role == "assistant"
    assert text_of(chunks) == "one " + odd
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None] * (len(chunks) - 1) + ["stop"]
    assert all(chunk.usage is None and "skillstream" not in (chunk.model_extra or {}) for chunk in chunks)


async def test_the_stream_has_no_lines_that_openai_clients_trip_over(start_gateway: StartGateway, hand: HandWorker) -> None:
    gateway = await start_gateway(http_keep_alive_s=0.05)
    assert gateway.http is not None
    order = {"model": HAND, "messages": HELLO, "stream": True, "skillstream": {"task_id": "t"}}
    lines: list[str] = []
    async with (
        asyncio.timeout(PATIENCE_S), httpx.AsyncClient(base_url=gateway.http.url, trust_env=False) as http,
        http.stream("POST", "/v1/chat/completions", json=order) as response,
    ):  # fmt: skip
        async for line in response.aiter_lines():
            if line.startswith(":") and not any(kept.startswith(":") for kept in lines):
                hand.run("t", "x")
            lines.append(line)
    assert response.headers["content-type"].startswith("text/event-stream")
    assert all(line == "" or line.startswith(("data: ", ": ")) for line in lines)
    assert all(after == "" for line, after in pairwise(lines) if line), "each block stands alone"
    assert lines[-2:] == ["data: [DONE]", ""]


async def test_usage_comes_where_it_is_asked_for_and_was_counted(gateway: Router, worker: Worker) -> None:
    wanted: Any = {"stream_options": {"include_usage": True}}
    counting = says(["say", "x"], ["usage", {"prompt_tokens": 3, "completion_tokens": 1}])
    async with openai_client(gateway) as client:
        *others, last = await chunks_of(client, counting, **wanted)
        assert (last.choices, last.usage is not None and last.usage.total_tokens) == ([], 4)
        assert {chunk.usage for chunk in others} == {None}
        assert others[-1].choices[0].finish_reason == "stop"
        uncounted = await chunks_of(client, says(["say", "x"]), **wanted)
        assert uncounted[-1].choices[0].finish_reason == "stop"
        assert all(chunk.usage is None for chunk in await chunks_of(client, counting))


async def test_the_accumulating_helper(gateway: Router, worker: Worker) -> None:
    async with (
        openai_client(gateway) as client,
        client.chat.completions.stream(model=MODEL, messages=says(["say", "a"], ["progress", "p"], ["say", "b"])) as stream,
    ):
        kinds = [event.type async for event in stream]
        completion = await stream.get_final_completion()
    assert kinds.count("content.done") == 1
    assert (completion.choices[0].message.content, completion.choices[0].finish_reason) == ("ab", "stop")


async def test_the_client_without_asyncio(gateway: Router, worker: Worker) -> None:
    def ask() -> tuple[str | None, str]:
        with blocking_client(gateway) as client:
            whole = client.chat.completions.create(model=MODEL, messages=says(["say", "x"]))
            stream = client.chat.completions.create(model=MODEL, messages=says(["say", "y"], ["say", "z"]), stream=True)
            return whole.choices[0].message.content, text_of(list(stream))

    assert await asyncio.to_thread(ask) == ("x", "yz")


async def test_messages_become_message_history_and_instructions(gateway: Router, worker: Worker, gates: Gates) -> None:
    verbs = script(["say", "x"])
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    messages: list[Any] = [
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "first"}]},
        {"role": "assistant", "content": "answer"}, {"role": "developer", "content": "Be kind."},
        {"role": "user", "content": [{"type": "text", "text": verbs}, picture]},
    ]  # fmt: skip
    async with openai_client(gateway) as client:
        await client.chat.completions.create(
            model=MODEL, messages=messages, temperature=0.5, user="u-1", metadata={"k": "v"},
            extra_body={"skillstream": {"context_id": "c", "payer": "acme"}},
        )  # fmt: skip
    context = gates.contexts[-1]
    assert [(turn["role"], turn["text"]) for turn in context.conversation_history] == [("user", "first"), ("agent", "answer")]
    assert context.metadata == {"k": "v", "instructions": "Be brief.\n\nBe kind.", "parameters": {"temperature": 0.5}}
    assert context.data == {"content": [{"type": "text", "text": verbs}, picture]}
    assert (context.sender_id, context.context_id, context.payer) == ("u-1", "c", "acme")


async def test_structured_output_is_told_as_json(gateway: Router, worker: Worker) -> None:
    class Book(BaseModel):
        title: str
        pages: int

    verbs = says(["snapshot", {"title": "Ti"}], ["book", "Tides", 12])
    async with openai_client(gateway) as client:
        assert json.loads(text_of(await chunks_of(client, verbs))) == {"title": "Tides", "pages": 12}
        parsed = await client.chat.completions.parse(model=MODEL, messages=verbs, response_format=Book)
        assert parsed.choices[0].message.parsed == Book(title="Tides", pages=12)
        both = await chunks_of(client, says(["book", "Tides", 12], ["say", "text wins"]))
        assert text_of(both) == "text wins"


@pytest.mark.guarantee("G5")
async def test_a_skill_that_only_returns_and_one_that_asks_back(gateway: Router, worker: Worker) -> None:
    async with openai_client(gateway) as client:
        chunks = await chunks_of(client, says(["respond", {"text": "all at once", "status": "completed"}]), model="verbs/plain")
        assert (text_of(chunks), chunks[-1].choices[0].finish_reason) == ("all at once", "stop")
        question = says(["respond", {"text": "Which one?", "status": "input-required"}])
        asked = await client.chat.completions.create(model=MODEL, messages=question)
        assert (asked.choices[0].message.content, asked.choices[0].finish_reason) == ("Which one?", "stop")


async def test_progress_is_told_to_those_who_ask(gateway: Router, worker: Worker) -> None:
    async with openai_client(gateway) as client:
        asked: Any = {"extra_body": {"skillstream": {"progress": True}}}
        chunks = await chunks_of(client, says(["progress", "reading", 0.25], ["say", "x"]), **asked)
    carriers = [chunk for chunk in chunks if not chunk.choices]
    assert [(chunk.model_extra or {})["skillstream"] for chunk in carriers] == [
        {"type": "status", "text": "reading", "progress": 0.25}
    ]


async def test_a_run_that_fails_before_it_says_anything_is_not_run_again(gateway: Router, worker: Worker, gates: Gates) -> None:
    failing = says(["raise", "ValueError", "no luck"])
    async with openai_client(gateway, max_retries=2) as client:
        with pytest.raises(InternalServerError) as failed:
            await client.chat.completions.create(model=MODEL, messages=failing)
        assert len(gates.contexts) == 1
        assert (body_of(failed.value)["code"], body_of(failed.value)["type"]) == ("skill_error", "server_error")
        assert "no luck" in body_of(failed.value)["message"]
        with pytest.raises(APIError, match="no luck"):
            await chunks_of(client, failing)


async def test_a_run_that_fails_in_the_middle(gateway: Router, worker: Worker) -> None:
    async with openai_client(gateway) as client:
        stream = await client.chat.completions.create(
            model=MODEL, messages=says(["say", "so far"], ["raise", "ValueError", "no luck"]), stream=True
        )
        heard: list[ChatCompletionChunk] = []
        with pytest.raises(APIError) as failed:
            await _collect(stream, heard)
        assert text_of(heard) == "so far"
        assert body_of(failed.value)["code"] == "skill_error"


async def _collect(stream: Any, heard: list[ChatCompletionChunk]) -> None:
    async for chunk in stream:
        heard.append(chunk)  # noqa: PERF401


async def test_an_output_that_hits_its_limit_ends_with_length(gateway: Router, hand: HandWorker) -> None:
    async def run(task_id: str) -> None:
        hand.submit(task_id, history="[]")
        hand.open(task_id)
        hand.say(task_id, "much")
        hand.finish(task_id, "1-3", "much", chunks=1, state="failed", error="output_too_large", reason="16 MiB")

    async with openai_client(gateway) as client:
        for task_id, streamed in (("t", False), ("u", True)):
            await run(task_id)
            named: Any = {"extra_body": {"skillstream": {"task_id": task_id}}}
            if streamed:
                chunks = await chunks_of(client, HELLO, HAND, **named)
                assert (text_of(chunks), chunks[-1].choices[0].finish_reason) == ("much", "length")
            else:
                whole = await client.chat.completions.create(model=HAND, messages=HELLO, **named)
                assert (whole.choices[0].message.content, whole.choices[0].finish_reason) == ("much", "length")


async def test_a_canceled_run_is_an_error(gateway: Router, worker: Worker, gates: Gates, http: httpx.AsyncClient) -> None:
    waiting = says(["say", "part"], ["reach", "running"], ["wait", "never"])
    named: Any = {"extra_body": {"skillstream": {"task_id": "t"}}}
    async with openai_client(gateway) as client:
        asked = asyncio.create_task(client.chat.completions.create(model=MODEL, messages=waiting, **named))
        await gates.reached("running")
        await http.post("/v1/tasks/t/cancel", json={"reason": "enough"})
        with pytest.raises(ConflictError) as canceled:
            await asked
    assert (body_of(canceled.value)["code"], body_of(canceled.value)["message"]) == ("canceled", "enough")


@pytest.mark.guarantee("G6")
async def test_a_named_task_runs_once_however_often_it_is_asked_for(gateway: Router, worker: Worker, gates: Gates) -> None:
    named: Any = {"extra_body": {"skillstream": {"task_id": "once"}}}
    async with openai_client(gateway) as client:
        first = await client.chat.completions.create(model=MODEL, messages=says(["say", "x"]), **named)
        again = await client.chat.completions.create(model=MODEL, messages=says(["say", "x"]), **named)
        assert first == again
        assert text_of(await chunks_of(client, says(["say", "x"]), **named)) == "x"
        with pytest.raises(ConflictError) as taken:
            await client.chat.completions.create(model=MODEL, messages=says(["say", "y"]), **named)
    assert body_of(taken.value)["code"] == "task_id_taken"
    assert len(gates.contexts) == 1


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_client_that_leaves_early_ends_nothing(
    gateway: Router, worker: Worker, gates: Gates, http: httpx.AsyncClient, streamed: bool
) -> None:
    await leave(gateway, gates, streamed, {"task_id": "t"})
    gates.open("go on")
    events = await read_all(http, "t")
    assert (events[-1]["state"], events[-1]["text"]) == ("completed", "ab")


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_client_may_ask_to_end_the_run_by_leaving(
    gateway: Router, worker: Worker, gates: Gates, http: httpx.AsyncClient, streamed: bool
) -> None:
    await leave(gateway, gates, streamed, {"task_id": "t", "cancel_on_disconnect": True})
    async with asyncio.timeout(PATIENCE_S):
        events = await read_all(http, "t")
    assert (events[-1]["state"], events[-1]["reason"]) == ("canceled", "the reader left")


async def leave(gateway: Router, gates: Gates, streamed: bool, extension: dict[str, Any]) -> None:
    """Asks, and leaves while the run waits for the gate `go on`."""
    messages = says(["say", "a"], ["reach", "running"], ["wait", "go on"], ["say", "b"])
    extra: Any = {"extra_body": {"skillstream": extension}}
    async with openai_client(gateway) as client:
        if streamed:
            stream = await client.chat.completions.create(model=MODEL, messages=messages, stream=True, **extra)
            async for chunk in stream:
                if chunk.choices[0].delta.content:
                    break
            await stream.close()
        else:
            asked = asyncio.create_task(client.chat.completions.create(model=MODEL, messages=messages, **extra))
            await gates.reached("running")
            asked.cancel()
            await asyncio.wait([asked])


async def test_a_restarted_attempt_is_an_error_once_something_was_said(gateway: Router, hand: HandWorker) -> None:
    hand.submit("t", history="[]")
    hand.open("t")
    named: Any = {"extra_body": {"skillstream": {"task_id": "t"}}}
    async with openai_client(gateway) as client:
        stream: Any = await client.chat.completions.create(model=HAND, messages=HELLO, stream=True, **named)
        async with asyncio.timeout(PATIENCE_S):
            assert (await anext(stream)).choices[0].delta.role == "assistant"
            hand.open("t", 2)  # nothing was said yet
            hand.say("t", "old", attempt=2)
            assert (await anext(stream)).choices[0].delta.content == "old"
            hand.open("t", 3, resume_from=3)  # all that was said stands
            hand.say("t", "er", attempt=3)
            assert (await anext(stream)).choices[0].delta.content == "er"
            hand.open("t", 4, resume_from=4)
            with pytest.raises(APIError) as restarted:
                await anext(stream)
        assert body_of(restarted.value)["code"] == "attempt_restarted"
        hand.say("t", "new", attempt=4)
        hand.finish("t", "4-3", "oldenew", chunks=1)
        assert text_of(await chunks_of(client, HELLO, HAND, **named)) == "oldenew", "who comes later hears the newest alone"


async def test_a_gateway_that_stops_says_so(start_gateway: StartGateway, http_settings: Settings, hand: HandWorker) -> None:
    router = Router(http_settings)
    await router.start()
    hand.submit("t", history="[]")
    hand.open("t")
    hand.say("t", "half")
    named: Any = {"extra_body": {"skillstream": {"task_id": "t"}}}
    async with openai_client(router) as client, asyncio.timeout(PATIENCE_S):
        stream: Any = await client.chat.completions.create(model=HAND, messages=HELLO, stream=True, **named)
        assert [(await anext(stream)).choices[0].delta.content for _ in range(2)] == ["", "half"]
        whole = asyncio.create_task(client.chat.completions.create(model=HAND, messages=HELLO, **named))
        await eventually(lambda: any("Task.result" in repr(task) for task in asyncio.all_tasks()), "the gateway waits for it")
        stopping = asyncio.create_task(router.__aexit__())
        with pytest.raises(APIError) as cut:
            await anext(stream)
        with pytest.raises(APIStatusError) as refused:
            await whole
    await stopping
    assert body_of(cut.value)["code"] == body_of(refused.value)["code"] == "gateway_stopping"


async def test_a_hole_in_the_stream_is_an_error(gateway: Router, hand: HandWorker, outside: redis.Redis) -> None:
    hand.submit("t", history="[]")
    hand.open("t")
    hand.say("t", "lost", seq=3)
    async with openai_client(gateway) as client:
        with pytest.raises(APIError) as failed:
            await chunks_of(client, HELLO, HAND, extra_body={"skillstream": {"task_id": "t"}})
    assert body_of(failed.value)["code"] == "stream_gap"
