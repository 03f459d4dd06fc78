"""The chat examples as a real uAgents agent sees them: start, text in pieces, end; a long text in several messages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from uagents_core.identity import Identity

from examples.chat_streaming import agent
from skillstream import Client
from skillstream_router.connect.agentverse import ChatAddress, ChatBridge
from skillstream_router.connect.agentverse.identity import seed_of
from skillstream_schemas.settings import Settings
from skillstream_worker import Agent, Worker
from skillstream_worker.chat_handler import chat_handler
from tests.connect.chat_peer import ChatPeer
from tests.connect.conftest import UNHURRIED_CHAT
from tests.support.redis_server import free_port

SEED = "the secret seed of the examples"
PORT = free_port()
TEXT = "The tide rises twice a day. The moon pulls it, and the sun helps. Ships wait for it."


@pytest.fixture(scope="module")
def reader() -> Iterator[ChatPeer]:
    """A real uAgents agent that knows the writer."""
    known = {str(Identity.from_seed(seed_of(SEED, "writer"), 0).address): f"http://127.0.0.1:{PORT}/submit"}
    peer = ChatPeer("the seed of a reader of examples", known)
    try:
        peer.wait_ready()
        yield peer
    finally:
        peer.stop()


@pytest.mark.parametrize("skill", ["stream", "stream-by-yield", "whole"])
async def test_a_chat_agent_sees_the_sequence(settings: Settings, reader: ChatPeer, skill: str) -> None:
    worker = Worker([agent], settings, name="w1")
    await worker.start()
    text = TEXT if skill != "whole" else "\n\n".join([TEXT * 12] * 6)
    try:
        address = ChatAddress(SEED, port=PORT, peers={reader.address: reader.url})
        async with ChatBridge(address, [f"writer/{skill}"], settings, pace=UNHURRIED_CHAT) as bridge:
            session = reader.say(next(iter(bridge.agents)), text)
            await reader.until(lambda: reader.text(session).split() == text.split(), "the text")
            if skill != "whole":
                await reader.until(lambda: reader.kinds(session) == ["start-stream", "text", "end-stream"], "the stream")
    finally:
        await worker.stop(grace_s=0)
    contents = reader.contents(session)
    if skill == "whole":
        assert len(contents) > 1
        assert {content["type"] for content in contents} == {"text"}
        paragraphs = [part for content in contents for part in content["text"].strip("\n").split("\n\n")]
        assert paragraphs == [TEXT * 12] * 6, "cut between paragraphs"
    else:
        assert contents[0]["stream_id"] == contents[-1]["stream_id"]
        assert all(content["text"].rstrip().endswith(".") for content in contents[1:-1]), "pieces end with their sentence"


async def test_a_handler_that_raises_fails_its_task(settings: Settings) -> None:
    failing = Agent("failing")

    async def handler(ctx: object, sender: str, message: object) -> None:
        raise ValueError("no")

    failing.skill("chat")(chat_handler(handler))
    worker = Worker([failing], settings, name="w1")
    await worker.start()
    try:
        async with Client(settings=settings) as client:
            final = await (await client.submit("failing", "chat", "x")).result(10)
    finally:
        await worker.stop(grace_s=0)
    assert (final.state, final.error, final.reason) == ("failed", "skill_error", "ValueError: no")
