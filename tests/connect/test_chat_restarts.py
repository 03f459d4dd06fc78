"""The bridge ended at moments of chance, again and again: every stream is closed, and the last one says all."""

from __future__ import annotations

import asyncio
import random
from functools import partial
from typing import Any
from uuid import UUID

import redis

from tests.router.eventually import eventually
from tests.support.verbs import Gates, script

from .chat_peer import ChatPeer
from .conftest import StartBridge
from .test_chat import address_of, nothing_owed

SENTENCES = [f"Sentence {number}. " for number in range(12)]
RESTARTS = 12
SEED = 20_240_229


def streams(contents: list[dict[str, Any]]) -> list[str]:
    """The text of each stream; fails where one opens in another, or ends under another's id."""
    texts: list[str] = []
    is_open: str | None = None
    for content in contents:
        match content["type"]:
            case "start-stream":
                assert is_open is None, "one stream at a time"
                is_open = content["stream_id"]
                texts.append("")
            case "end-stream":
                # one that was written down and not yet opened may be closed all the same
                assert is_open in (None, content["stream_id"]), "it ends under its own id"
                is_open = None
            case "text":
                assert is_open is not None, "text stands in a stream"
                texts[-1] += content["text"]
    assert is_open is None, "every stream is closed"
    return texts


def said_all(peer: ChatPeer, session: UUID) -> bool:
    contents = peer.contents(session)
    return contents[-1]["type"] == "end-stream" and streams(contents)[-1] == "".join(SENTENCES)


async def test_a_bridge_that_ends_at_any_moment_leaves_no_stream_open(
    bridged: StartBridge, peer: ChatPeer, gates: Gates, outside: redis.Redis
) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    words = script(*(verb for sentence in SENTENCES for verb in (["say", sentence], ["status", "On"])))
    sessions: list[UUID] = []
    for _ in range(RESTARTS):
        async with bridged() as bridge:
            if len(sessions) < RESTARTS // 3:
                sessions.append(peer.say(address_of(bridge), words))
                await peer.until(lambda: peer.acks(sessions[-1]), "the message is kept")
            await asyncio.sleep(chance.uniform(0, 0.06))  # the moment of chance
    async with bridged():
        await eventually(nothing_owed(outside), "nothing is owed", 15)
    for session in sessions:
        # the peer takes a message before it handles it
        await peer.until(partial(said_all, peer, session), "the last stream says all and is closed")
        streams(peer.contents(session))
    assert len(gates.contexts) == len(sessions), "each ran once"
