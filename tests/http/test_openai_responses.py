"""Responses with OpenAI's own client: created, streamed, in the background, taken up behind a cut."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from skillstream_router.app import Router
from skillstream_schemas.settings import Settings
from skillstream_worker import Worker
from tests.client.hand_worker import HandWorker
from tests.support.verbs import Gates, script

from .conftest import PATIENCE_S, StartGateway
from .openai_clients import MODEL, openai_client
from .responses import ATTEMPT, BEGINNING, DELTA, END, ask, events_of, numbers, text_of

SEED = 20_240_229


async def test_a_whole_response(gateway: Router, worker: Worker, gates: Gates) -> None:
    async with openai_client(gateway) as client:
        told = await ask(
            client, ["say", "one "], ["say", "two"], ["usage", {"input_tokens": 5, "output_tokens": 2, "cached_tokens": 1}],
            instructions="Be brief.", metadata={"k": "v"}, temperature=0.5,
        )  # fmt: skip
        assert (told.object, told.status, told.model, told.output_text) == ("response", "completed", MODEL, "one two")
        assert (told.instructions, told.metadata, told.error) == ("Be brief.", {"k": "v"}, None)
        assert told.usage is not None
        assert (told.usage.input_tokens, told.usage.output_tokens, told.usage.total_tokens) == (5, 2, 7)
        assert told.usage.input_tokens_details.cached_tokens == 1
        assert await client.responses.retrieve(told.id) == told
    assert gates.contexts[-1].metadata == {"k": "v", "instructions": "Be brief.", "parameters": {"temperature": 0.5}}


async def test_a_streamed_response(gateway: Router, worker: Worker) -> None:
    async with openai_client(gateway) as client:
        parts = [{"type": "input_text", "text": script(["say", "a"], ["say", "b"])}]
        items: Any = [{"role": "user", "content": parts}]
        stream: Any = await client.responses.create(model=MODEL, input=items, stream=True)
        events: list[Any] = [event async for event in stream]
        kinds = [event.type for event in events]
        assert kinds == BEGINNING + [DELTA] * kinds.count(DELTA) + END
        assert text_of(events) == "ab"
        assert numbers(events) == sorted(set(numbers(events)))
        assert numbers(events)[0] == 1
        assert next(event for event in events if event.type == DELTA).sequence_number == ATTEMPT + 2
        last = events[-1]
        assert last.type == "response.completed"
        assert last.response == await client.responses.retrieve(last.response.id)


async def test_the_accumulating_helper(gateway: Router, worker: Worker) -> None:
    async with (
        openai_client(gateway) as client,
        client.responses.stream(model=MODEL, input=script(["say", "a"], ["progress", "p"], ["say", "b"])) as stream,
    ):
        kinds = [event.type async for event in stream]
        assert (await stream.get_final_response()).output_text == "ab"
    assert kinds[-1] == "response.completed"


async def test_a_background_response_is_taken_up_behind_a_cut(gateway: Router, worker: Worker, gates: Gates) -> None:
    async with openai_client(gateway) as client:
        queued = await ask(
            client, ["say", "a"], ["reach", "running"], ["wait", "go on"], ["say", "b"], ["say", "c"], background=True
        )
        assert queued.status in ("queued", "in_progress")
        stream: Any = await client.responses.retrieve(queued.id, stream=True)
        seen: list[Any] = []
        async with asyncio.timeout(PATIENCE_S):
            async for event in stream:
                seen.append(event)
                if event.type == DELTA:
                    break
        await stream.close()  # the cut
        assert (await client.responses.retrieve(queued.id)).status == "in_progress"
        gates.open("go on")
        seen += await events_of(client, queued.id, seen[-1].sequence_number)
        whole = await events_of(client, queued.id)
        assert seen == whole
        assert text_of(whole) == "abc"


@pytest.mark.guarantee("G3")
async def test_a_response_cut_anywhere_is_exactly_the_stream(gateway: Router, hand: HandWorker) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    hand.submit("t")
    async with openai_client(gateway) as client:
        hand.open("t")
        hand.say("t", "a", "ü", "c")
        hand.add("t", "1-5", type="status", state="working", text="still")
        hand.say("t", "d", seq=6)
        hand.finish("t", "1-7", "aücd", chunks=4)
        whole = await events_of(client, "resp_t")
        assert [event.type for event in whole] == BEGINNING + [DELTA] * 4 + END
        for known in [0, *numbers(whole)]:
            assert await events_of(client, "resp_t", known) == [event for event in whole if event.sequence_number > known]
        hand.submit("u")
        hand.open("u")
        seen: list[Any] = []
        for place in range(2, 32):
            hand.say("u", f"<{place}>", seq=place)
            stream: Any = await client.responses.retrieve(
                "resp_u", stream=True, starting_after=seen[-1].sequence_number if seen else 0
            )
            async with asyncio.timeout(PATIENCE_S):
                seen += [await anext(stream) for _ in range(chance.randrange(2) + (place == 2))]
            await stream.close()
        hand.finish("u", "1-32", "".join(f"<{place}>" for place in range(2, 32)), chunks=30)
        seen += await events_of(client, "resp_u", seen[-1].sequence_number)
        assert seen == await events_of(client, "resp_u")


async def test_a_stream_goes_on_at_another_gateway(
    start_gateway: StartGateway, http_settings: Settings, hand: HandWorker
) -> None:
    first = Router(http_settings)
    await first.start()
    hand.submit("t")
    hand.open("t")
    hand.say("t", "half")
    async with openai_client(first) as client, asyncio.timeout(PATIENCE_S):
        stream: Any = await client.responses.retrieve("resp_t", stream=True)
        seen = [await anext(stream) for _ in range(5)]
        stopping = asyncio.create_task(first.__aexit__())
        told = [event async for event in stream]
    await stopping
    assert [(event.type, event.code, event.sequence_number) for event in told] == [
        ("error", "gateway_stopping", seen[-1].sequence_number)
    ]
    hand.say("t", " more", seq=3)
    hand.finish("t", "1-4", "half more", chunks=2)
    async with openai_client(await start_gateway()) as client:
        assert seen + await events_of(client, "resp_t", told[-1].sequence_number) == await events_of(client, "resp_t")


@pytest.mark.guarantee("G5")
async def test_text_that_was_never_streamed_is_one_delta(gateway: Router, hand: HandWorker) -> None:
    hand.submit("t")
    hand.open("t")
    hand.finish("t", "1-2", "all at once", chunks=0)
    async with openai_client(gateway) as client:
        whole = await events_of(client, "resp_t")
        assert [event.type for event in whole] == [*BEGINNING, DELTA, *END]
        assert (text_of(whole), whole[4].sequence_number) == ("all at once", ATTEMPT + 2)
        for known in numbers(whole):
            assert await events_of(client, "resp_t", known) == [event for event in whole if event.sequence_number > known]
