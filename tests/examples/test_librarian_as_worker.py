"""The librarian on a real server: its skills as tasks that a worker runs and a client follows."""

from __future__ import annotations

from typing import Any

import redis

from examples.librarian import agent
from skillstream import Client, StatusEvent
from skillstream_schemas.settings import Settings
from skillstream_worker import Worker

BOUND_S = 10


async def test_research_streams_reports_and_text(settings: Settings, client: Client, outside: redis.Redis) -> None:
    async with Worker([agent], settings):
        task = await client.submit("librarian", "research", "how timeouts work in asyncio", payer="acme")
        reports = [event async for event in task.events() if isinstance(event, StatusEvent) and event.progress is not None]
        text = "".join([piece async for piece in task.text()])
        final = await task.result(BOUND_S)
    assert len(reports) > 5
    assert final.state == "completed"
    assert final.metadata["matches"]
    assert text == final.text
    entries: Any = outside.xrange(task.stream)
    assert "".join(fields["text"] for _, fields in entries if fields["type"] == "chunk") == text
    assert entries[0][1]["price_micros"] == "50000"


async def test_a_place_that_is_not_there_fails_with_its_sentence(
    settings: Settings, client: Client, outside: redis.Redis
) -> None:
    async with Worker([agent], settings):
        final = await (await client.submit("librarian", "research", "rain in no_such_package")).result(BOUND_S)
    assert (final.state, final.error) == ("failed", "skill_error")
    assert "There is no package 'no_such_package'" in (final.reason or "")


async def test_summarize_has_only_a_final(settings: Settings, client: Client, outside: redis.Redis) -> None:
    async with Worker([agent], settings):
        task = await client.submit("librarian", "summarize", "Rain falls on hills. Rain feeds rivers.")
        final = await task.result(BOUND_S)
    assert (final.state, final.text, final.chunks) == ("completed", "Rain falls on hills.", 0)


async def test_the_answer_to_a_draft_may_come_at_once(settings: Settings, client: Client, outside: redis.Redis) -> None:
    async with Worker([agent], settings):
        conversation = client.conversation("librarian", payer="acme")
        first = await (await conversation.submit("draft", "parsing of headers in email")).result(BOUND_S)
        second = await (await conversation.submit("draft", "accept")).result(BOUND_S)
    assert (first.state, first.metadata["draft_version"]) == ("input-required", 1)
    assert (second.state, second.metadata["draft_version"]) == ("completed", 2)
    assert second.text.startswith("# Draft 2: parsing of headers in email")
