"""Chat agents as skills: a real uAgents agent asked through the bridge, and its answer streamed by a task."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
import redis

from skillstream import Client
from skillstream_router.connect.agentverse import ChatAddress, ChatBridge
from skillstream_schemas.connect_errors import PeerUnavailable
from skillstream_schemas.event import ChunkEvent, StatusEvent
from skillstream_schemas.settings import Settings
from skillstream_worker import Agent, Worker
from skillstream_worker.chat_agent import chat_skill
from tests.support.redis_server import free_port
from tests.support.verbs import BOUND_S, Gates, script

from .chat_peer import ChatPeer
from .conftest import QUICK_CHAT, SEED

KEY = "the key of skills that ask"
NOBODY = "agent1" + "q" * 59


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


def reply(*messages: list[dict[str, Any]]) -> str:
    """A question that the peer answers with these messages."""
    return json.dumps({"reply": messages})


@pytest.fixture
def bridge_port(monkeypatch: pytest.MonkeyPatch, chat_port: int) -> int:
    """The bridge's port, and the environment of skills that ask."""
    monkeypatch.setenv("SKILLSTREAM_CHAT_BRIDGE", f"http://127.0.0.1:{chat_port}")
    monkeypatch.setenv("SKILLSTREAM_CHAT_KEY", KEY)
    return chat_port


@pytest.fixture
async def asker(settings: Settings, peer: ChatPeer) -> AsyncIterator[Worker]:
    """A worker of an agent whose skill asks the peer."""
    agent = Agent("echo")
    agent.skill("ask", retry_on=(PeerUnavailable,), max_attempts=2)(chat_skill(peer.address, quiet_s=0.8, timeout_s=3))
    agent.skill("ask-nobody", retry_on=(PeerUnavailable,), max_attempts=1)(chat_skill(NOBODY, timeout_s=0.3))
    worker = Worker([agent], settings, name="w2")
    await worker.start()
    yield worker
    await worker.stop(grace_s=0)


@asynccontextmanager
async def bridge(settings: Settings, peer: ChatPeer, port: int, *agents: str) -> AsyncIterator[ChatBridge]:
    address = ChatAddress(
        SEED, port=port, peers={peer.address: peer.url, "agent1" + "q" * 59: "http://127.0.0.1:1/submit"}, ask_key=KEY
    )
    async with ChatBridge(address, agents or ("echo",), settings, pace=QUICK_CHAT) as started:
        yield started


async def test_a_chat_agents_stream_is_the_tasks_stream(
    settings: Settings, asker: Worker, peer: ChatPeer, bridge_port: int, client: Client
) -> None:
    stream = str(uuid4())
    question = reply(
        [{"type": "metadata", "metadata": {"status": "Thinking"}}],
        [{"type": "start-stream", "stream_id": stream}],
        [text("One. ")],
        [text("Two.")],
        [{"type": "end-stream", "stream_id": stream}],
    )
    async with bridge(settings, peer, bridge_port):
        task = await client.submit("echo", "ask", question)
        events = [event async for event in task.events()]
        final = await task.result(BOUND_S)
    assert (final.state, final.text) == ("completed", "One. Two.")
    assert [event.text for event in events if isinstance(event, StatusEvent) and event.text] == ["Thinking"]
    assert "".join(event.text or "" for event in events if isinstance(event, ChunkEvent)) == "One. Two."


async def test_a_plain_answer_ends_when_it_is_quiet_or_its_session_ends(
    settings: Settings, asker: Worker, peer: ChatPeer, bridge_port: int, client: Client
) -> None:
    async with bridge(settings, peer, bridge_port):
        several = await client.submit("echo", "ask", reply([text("One. ")], [text("Two.")]))
        resource = {"type": "resource", "resource_id": str(uuid4()), "resource": {"uri": "https://example.org/x", "metadata": {}}}
        ended = await client.submit("echo", "ask", reply([text("Bye."), resource, {"type": "end-session"}]))
        assert (await several.result(BOUND_S)).text == "One. Two."
        final = await ended.result(BOUND_S)
    assert (final.text, final.data) == ("Bye.", {"resource": [{"uri": "https://example.org/x"}]})


async def test_tasks_of_a_context_are_one_session_and_others_are_not(
    settings: Settings, asker: Worker, peer: ChatPeer, bridge_port: int, client: Client
) -> None:
    async with bridge(settings, peer, bridge_port):
        for words, context in (("a", "c1"), ("b", "c1"), ("c", "c2")):
            task = await client.submit("echo", "ask", reply([text(words)]), context_id=context)
            assert (await task.result(BOUND_S)).text == words
    said = [record for record in peer.records if record["kind"] == "message"][-3:]
    assert said[0]["session"] == said[1]["session"] != said[2]["session"]


async def test_an_attempt_that_asks_again_is_given_the_answer_without_a_second_message(
    settings: Settings, asker: Worker, peer: ChatPeer, bridge_port: int
) -> None:
    asked = {
        "speaker": "echo",
        "to": peer.address,
        "session": str(uuid4()),
        "msg_id": str(uuid4()),
        "text": reply([text("Once.")]),
    }
    headers = {"authorization": f"Bearer {KEY}"}
    async with bridge(settings, peer, bridge_port) as started, httpx.AsyncClient(headers=headers) as http:
        url = started.url.replace("/submit", "/ask")
        answers = await asyncio.gather(*(http.post(url, json=asked) for _ in range(2)))
        answers.append(await http.post(url, json=asked))
    assert [[json.loads(line) for line in answer.text.splitlines()] for answer in answers] == [
        [{"text": "Once."}, {"end": True}]
    ] * 3
    assert sum(record.get("msg_id") == asked["msg_id"] for record in peer.records) == 1


async def test_who_cannot_be_reached_and_who_may_not_ask_are_said(
    settings: Settings, asker: Worker, peer: ChatPeer, bridge_port: int, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bridge(settings, peer, bridge_port) as started:
        nobody = await (await client.submit("echo", "ask-nobody", "x")).result(BOUND_S)
        silent = await (await client.submit("echo", "ask", "no reply")).result(4 * BOUND_S)
        monkeypatch.setenv("SKILLSTREAM_CHAT_KEY", "another key")
        stranger = await (await client.submit("echo", "ask", "x")).result(BOUND_S)
        async with httpx.AsyncClient(headers={"authorization": f"Bearer {KEY}"}) as http:
            wrong = await http.post(started.url.replace("/submit", "/ask"), json={"speaker": "echo"})
    monkeypatch.setenv("SKILLSTREAM_CHAT_BRIDGE", f"http://127.0.0.1:{free_port()}")
    away = await (await client.submit("echo", "ask-nobody", "x")).result(BOUND_S)
    assert [final.error for final in (nobody, silent, stranger, away)] == [
        "attempts_exhausted", "attempts_exhausted", "skill_error", "attempts_exhausted"
    ]  # fmt: skip
    assert "401" in (stranger.reason or "")
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (400, "invalid_request")


async def test_a_late_word_in_a_session_in_which_we_asked_is_no_question_to_us(
    settings: Settings, asker: Worker, worker: Worker, peer: ChatPeer, bridge_port: int, client: Client, gates: Gates,
    outside: redis.Redis,
) -> None:  # fmt: skip
    async with bridge(settings, peer, bridge_port, "verbs/stream", "echo") as started:
        address = next(agent.address for agent in started.agents.values() if agent.name == "echo")
        task = await client.submit("echo", "ask", reply([text("Done.")]))
        await task.result(BOUND_S)
        session = next(record["session"] for record in reversed(peer.records) if record["kind"] == "message")
    async with bridge(settings, peer, bridge_port, "verbs/stream", "echo") as started:  # also for a new process
        msg_id = uuid4()
        peer.say(address, "Late.", session=UUID(session), msg_id=msg_id)
        await peer.until(lambda: str(msg_id) in peer.acks(UUID(session)), "it is acknowledged")
        verbs = next(agent.address for agent in started.agents.values() if agent.name == "verbs")
        other = peer.say(verbs, script(["say", "Alive."]))
        await peer.until(lambda: "end-stream" in peer.kinds(other), "an answer elsewhere")
    assert len(list(outside.scan_iter("skillstream:task:*:events"))) == 2


async def test_without_a_key_nobody_may_ask(settings: Settings, asker: Worker, peer: ChatPeer, chat_port: int) -> None:
    async with ChatBridge(ChatAddress(SEED, port=chat_port), ["echo"], settings) as started, httpx.AsyncClient() as http:
        answer = await http.post(started.url.replace("/submit", "/ask"), json={}, headers={"authorization": "Bearer x"})
    assert answer.status_code == 404
