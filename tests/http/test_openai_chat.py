"""Chat completions with OpenAI's own client: whole, streamed, through its helpers."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from typing import Any

import httpx
import pytest
from pydantic import BaseModel

from skillstream_router.app import Router
from skillstream_worker import Worker
from tests.client.hand_worker import HandWorker
from tests.support.verbs import Gates, script

from .chat_completions import HAND, HELLO, chunks_of, text_of
from .conftest import PATIENCE_S, StartGateway
from .openai_clients import MODEL, blocking_client, openai_client, says


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
