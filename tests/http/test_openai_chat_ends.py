"""Chat completions that are cut short or go wrong, with OpenAI's own client."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
import redis
from openai import APIError, APIStatusError, ConflictError, InternalServerError
from openai.types.chat import ChatCompletionChunk

from skillstream_router.app import Router
from skillstream_schemas.settings import Settings
from skillstream_worker import Worker
from tests.client.hand_worker import HandWorker
from tests.router.eventually import eventually
from tests.support.verbs import Gates

from .chat_completions import HAND, HELLO, chunks_of, text_of
from .conftest import PATIENCE_S, StartGateway
from .openai_clients import MODEL, body_of, openai_client, says
from .sse import read_all


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
