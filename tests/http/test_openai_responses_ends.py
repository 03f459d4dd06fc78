"""Responses that restart, fail, are incomplete or left, and how one goes on behind another, with OpenAI's own client."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
import redis
from openai import APIStatusError, BadRequestError, NotFoundError

from skillstream_router.app import Router
from skillstream_schemas.settings import Settings
from skillstream_worker import Worker
from tests.client.hand_worker import HandWorker
from tests.router.eventually import eventually
from tests.router.ledger_file import LedgerFile
from tests.support.verbs import Gates, script

from .conftest import PATIENCE_S
from .openai_clients import MODEL, body_of, openai_client
from .responses import ATTEMPT, BEGINNING, DELTA, END, ask, events_of, numbers, text_of


async def test_a_restarted_attempt_is_an_error_that_says_where_it_goes_on(gateway: Router, hand: HandWorker) -> None:
    hand.submit("t")
    hand.open("t")
    hand.say("t", "kept lost")
    async with openai_client(gateway) as client:
        async with asyncio.timeout(PATIENCE_S):
            stream: Any = await client.responses.retrieve("resp_t", stream=True)
            seen = [await anext(stream) for _ in range(5)]
            hand.open("t", 2, resume_from=5)
            seen += [event async for event in stream]
        error = seen[-1]
        assert (error.type, error.code, error.sequence_number) == ("error", "attempt_restarted", 2 * ATTEMPT + 1)
        hand.say("t", "new", attempt=2)
        hand.finish("t", "2-3", "kept new", chunks=1)
        assert text_of(await events_of(client, "resp_t", error.sequence_number)) == "new"
        behind = await events_of(client, "resp_t", seen[-2].sequence_number)
        assert [event.type for event in behind] == ["error"], "the old text cannot be taken back from this reader either"
        fresh = await events_of(client, "resp_t")
        assert [event.type for event in fresh] == [*BEGINNING, DELTA, DELTA, *END]
        assert text_of(fresh) == "kept new"
        assert numbers(fresh) == sorted(set(numbers(fresh)))


async def test_a_number_that_no_event_has_is_refused(gateway: Router, hand: HandWorker) -> None:
    hand.submit("t")
    hand.open("t")
    async with openai_client(gateway) as client:
        for number in (ATTEMPT + 2, 7 * ATTEMPT, 2**80):
            with pytest.raises(BadRequestError):
                await events_of(client, "resp_t", number)
        hand.finish("t", "1-2", "", chunks=0)
        assert await events_of(client, "resp_t", ATTEMPT + 2 + 4) == []


async def test_how_runs_end_that_did_not_complete(gateway: Router, worker: Worker, gates: Gates) -> None:
    async with openai_client(gateway) as client:
        failed = await ask(client, ["say", "part"], ["raise", "ValueError", "no luck"])
        assert (failed.status, failed.output_text) == ("failed", "part")
        assert failed.error is not None
        assert (failed.error.code, failed.error.message.partition(":")[0]) == ("server_error", "skill_error")
        assert [event.type for event in await events_of(client, failed.id)][-1] == "response.failed"
        running = await ask(client, ["say", "part"], ["reach", "running"], ["wait", "never"], background=True)
        await gates.reached("running")
        canceled = await client.responses.cancel(running.id)
        assert (canceled.status, canceled.output_text, canceled.error) == ("cancelled", "part", None)
        assert await client.responses.cancel(running.id) == canceled
        last = (await events_of(client, running.id))[-1]
        assert last.type == "response.failed"
        assert last.response.status == "cancelled"
        asked = await ask(client, ["respond", {"text": "Which?", "status": "input-required"}])
        assert (asked.status, asked.output_text) == ("completed", "Which?")


async def test_an_output_that_hits_its_limit_is_incomplete(gateway: Router, hand: HandWorker) -> None:
    hand.submit("t")
    hand.open("t")
    hand.say("t", "much")
    hand.finish("t", "1-3", "much", chunks=1, state="failed", error="output_too_large", reason="16 MiB")
    async with openai_client(gateway) as client:
        told = await client.responses.retrieve("resp_t")
        assert (told.status, told.output_text) == ("incomplete", "much")
        assert told.incomplete_details is not None
        assert told.incomplete_details.reason == "max_output_tokens"
        assert (await events_of(client, "resp_t"))[-1].type == "response.incomplete"


async def test_a_response_goes_on_behind_the_previous_one(gateway: Router, worker: Worker, gates: Gates) -> None:
    def history() -> list[tuple[str, str]]:
        return [(turn["role"], turn["text"]) for turn in gates.contexts[-1].conversation_history]

    one, two, three = script(["say", "first"]), script(["say", "second"]), script(["say", "third"])
    async with openai_client(gateway) as client:
        first = await client.responses.create(model=MODEL, input=one)
        second = await client.responses.create(model=MODEL, input=two, previous_response_id=first.id)
        assert history() == [("user", one), ("agent", "first")]
        await client.responses.create(model=MODEL, input=three, previous_response_id=second.id)
        assert history() == [("user", one), ("agent", "first"), ("user", two), ("agent", "second")]
        await client.responses.create(model=MODEL, input=three, previous_response_id=first.id)
        assert history() == [("user", one), ("agent", "first")], "another branch"
        items: Any = [
            {"role": "user", "content": one},
            *[item.to_dict() for item in first.output],
            {"role": "user", "content": two},
        ]
        await client.responses.create(model=MODEL, input=items)
        assert history() == [("user", one), ("agent", "first")]


async def test_a_conversation_is_a_context(gateway: Router, worker: Worker, gates: Gates) -> None:
    one, two = script(["say", "first"]), script(["say", "second"])
    async with openai_client(gateway) as client:
        first = await client.responses.create(model=MODEL, input=one, conversation="talk")
        assert first.conversation is not None
        assert first.conversation.id == "talk"
        second = await client.responses.create(model=MODEL, input=two, previous_response_id=first.id)
        assert (second.conversation, second.previous_response_id) == (first.conversation, first.id)
        turns = [(turn["role"], turn["text"]) for turn in gates.contexts[-1].conversation_history]
        assert turns == [("user", one), ("agent", "first")]
        items: Any = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
        with pytest.raises(BadRequestError):
            await client.responses.create(model=MODEL, input=items, conversation="talk")
        with pytest.raises(BadRequestError):
            await client.responses.create(model=MODEL, input=one, conversation="talk", previous_response_id=first.id)


async def test_a_response_outlives_its_stream(
    gateway: Router, worker: Worker, ledger_file: LedgerFile, outside: redis.Redis, http_settings: Settings
) -> None:
    async with openai_client(gateway) as client:
        told = await ask(client, ["say", "x"], ["usage", {"input_tokens": 1}], metadata={"k": "v"})
        task_id = told.id.removeprefix("resp_")
        await eventually(lambda: ledger_file.task(task_id).get("state") == "completed", "the database has it")
        outside.delete(http_settings.keys.events(task_id))
        kept = await client.responses.retrieve(told.id)
        assert kept == told.model_copy(update={"metadata": {}}), "all but what was sent with the request"
        with pytest.raises(APIStatusError) as gone:
            await events_of(client, told.id)
    assert (gone.value.status_code, body_of(gone.value)["code"]) == (410, "gap")


async def test_progress_is_told_to_those_who_ask(gateway: Router, worker: Worker) -> None:
    async with openai_client(gateway) as client:
        stream: Any = await client.responses.create(
            model=MODEL, input=script(["progress", "reading", 0.25]), stream=True, extra_body={"skillstream": {"progress": True}}
        )
        told = [event.model_extra["skillstream"] async for event in stream if "skillstream" in (event.model_extra or {})]
        said = {"type": "status", "text": "reading", "progress": 0.25}
        assert told == [said]
        response_id = stream.response.headers["x-task-id"]
        again: Any = await client.responses.retrieve(f"resp_{response_id}", stream=True, extra_query={"progress": True})
        assert [event.model_extra["skillstream"] async for event in again if event.model_extra] == [said]


async def test_a_client_that_leaves_may_end_the_run(
    gateway: Router, worker: Worker, gates: Gates, http: httpx.AsyncClient
) -> None:
    verbs = script(["say", "a"], ["reach", "running"], ["wait", "never"])
    leaving: Any = {"extra_body": {"skillstream": {"task_id": "t", "cancel_on_disconnect": True}}}
    async with openai_client(gateway) as client:
        asked = asyncio.create_task(client.responses.create(model=MODEL, input=verbs, **leaving))
        await gates.reached("running")
        asked.cancel()
        await asyncio.wait([asked])
        async with asyncio.timeout(PATIENCE_S):
            assert (await events_of(client, "resp_t"))[-1].type == "response.failed"


async def test_unknown_responses(gateway: Router, hand: HandWorker) -> None:
    async with openai_client(gateway) as client:
        for response_id in ("resp_nobody", "nobody", "resp_a b"):
            with pytest.raises(NotFoundError) as unknown:
                await client.responses.retrieve(response_id)
            assert body_of(unknown.value)["code"] == "unknown_task"
            with pytest.raises(NotFoundError):
                await client.responses.cancel(response_id)
        with pytest.raises(NotFoundError):
            await client.responses.create(model="echo/say", input="x", previous_response_id="resp_nobody")
        hand.submit("t")
        with pytest.raises(BadRequestError, match="has not ended"):
            await client.responses.create(model="echo/say", input="x", previous_response_id="resp_t")
    assert hand.queued() == {}
