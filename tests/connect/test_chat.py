"""The chat bridge with a real uAgents agent: what the agent sees of a task, in order."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
import redis

from skillstream import Client
from skillstream_router.connect.agentverse import ChatBridge
from skillstream_worker import Worker
from tests.router.eventually import eventually
from tests.support.cutting_proxy import CuttingProxy
from tests.support.processes import Process
from tests.support.redis_server import free_port
from tests.support.verbs import BOUND_S, Gates, script

from .chat_peer import ChatPeer
from .conftest import QUICK_CHAT, SEED, UNHURRIED_CHAT, StartBridge

STREAM = ["start-stream", "text", "end-stream"]


def address_of(bridge: ChatBridge, name: str = "verbs") -> str:
    """The address of one of the bridge's agents."""
    return next(agent.address for agent in bridge.agents.values() if agent.name == name)


def ended(peer: ChatPeer, session: Any, *kinds: str) -> Any:
    """True once these kinds of content have come."""
    return lambda: peer.kinds(session) == list(kinds)


def nothing_owed(outside: redis.Redis) -> Any:
    """True once all is answered and written down."""
    return lambda: not list(outside.scan_iter("skillstream:connect:*:open"))


async def test_a_streamed_answer_is_one_stream_of_sentences_in_order(
    bridged: StartBridge, peer: ChatPeer, outside: redis.Redis
) -> None:
    words = [["say", piece] for piece in ("The tide", " rises. The", " tide falls.\n", "It is", " the moon", " that pulls.")]
    async with bridged(pace=UNHURRIED_CHAT) as bridge:
        msg_id = uuid4()
        session = peer.say(address_of(bridge), script(*words), msg_id=msg_id)
        await peer.until(ended(peer, session, *STREAM), "the stream")
        await eventually(nothing_owed(outside), "nothing is owed")
    contents = peer.contents(session)
    assert peer.text(session) == "The tide rises. The tide falls.\nIt is the moon that pulls."
    assert contents[0]["stream_id"] == contents[-1]["stream_id"]
    assert all(set(content) == {"type", "text"} for content in contents[1:-1])
    assert len(contents) <= 2 + 3, "no piece is smaller than a sentence"
    assert peer.acks(session) == [str(msg_id)]
    first = next(record for record in peer.records if record.get("session") == str(session))
    assert first["kind"] == "ack", "acknowledged before it is answered"


async def test_progress_comes_as_metadata_behind_the_text_before_it(bridged: StartBridge, peer: ChatPeer) -> None:
    async with bridged() as bridge:
        session = peer.say(
            address_of(bridge), script(["progress", "Looking", 0.5], ["say", "One"], ["status", "On"], ["say", "."])
        )
        await peer.until(lambda: "end-stream" in peer.kinds(session), "the end")
    assert peer.kinds(session) == ["metadata", "start-stream", "text", "metadata", "text", "end-stream"]
    assert peer.contents(session)[0]["metadata"] == {"status": "Looking", "progress": "0.5"}
    assert peer.text(session) == "One."


async def test_an_answer_that_does_not_stream_is_one_message_or_several_at_boundaries(
    bridged: StartBridge, peer: ChatPeer
) -> None:
    long = "\n\n".join(f"## Part {number}\n\n" + "Words of it. " * 60 for number in range(12))
    async with bridged("verbs/plain") as bridge:
        short_session = peer.say(address_of(bridge), script(["say", "The answer"]))
        long_session = peer.say(address_of(bridge), script(["say", long]))
        await peer.until(lambda: peer.text(long_session) == long, "the long answer")
    assert peer.contents(short_session) == [{"type": "text", "text": "The answer"}]
    pieces = [content["text"] for content in peer.contents(long_session)]
    assert len(pieces) > 2
    assert all(piece.lstrip("\n").startswith("## Part") for piece in pieces), "cut between sections"


async def test_a_stream_is_closed_when_the_skill_fails(bridged: StartBridge, peer: ChatPeer) -> None:
    async with bridged() as bridge:
        session = peer.say(address_of(bridge), script(["say", "Half a"], ["raise", "ValueError", "no"]))
        await peer.until(ended(peer, session, *STREAM, "metadata"), "the end")
        silent = peer.say(address_of(bridge), script(["raise", "ValueError", "no"]))
        await peer.until(ended(peer, silent, "text", "metadata"), "the end without a word")
    said = peer.contents(session)[-1]["metadata"]
    assert (said["status"], said["error"]) == ("failed", "skill_error")
    assert peer.text(session) == "Half a"
    assert peer.text(silent).startswith("The task failed: ValueError: no")


async def test_a_stream_is_closed_when_the_task_is_canceled(
    bridged: StartBridge, peer: ChatPeer, gates: Gates, client: Client
) -> None:
    async with bridged() as bridge:
        session = peer.say(address_of(bridge), script(["say", "Half. "], ["reach", "running"], ["wait", "never"]))
        await peer.until(lambda: peer.text(session) == "Half. ", "the first half")
        await client.task(gates.contexts[0].task_id).cancel("enough", timeout=BOUND_S)
        await peer.until(ended(peer, session, *STREAM, "metadata"), "the end")
    assert peer.contents(session)[-1]["metadata"] == {"status": "canceled", "reason": "enough"}


async def test_a_question_back_says_so_and_the_answer_has_the_history(bridged: StartBridge, peer: ChatPeer, gates: Gates) -> None:
    async with bridged() as bridge:
        session = peer.say(address_of(bridge), script(["say", "Which?"], ["respond", {"status": "input-required"}]))
        await peer.until(ended(peer, session, *STREAM, "metadata"), "the question")
        peer.say(address_of(bridge), script(["say", "That."]), session=session)
        await peer.until(ended(peer, session, *STREAM, "metadata", *STREAM), "the answer")
        other = peer.say(address_of(bridge), script(["say", "Alone."]))
        await peer.until(ended(peer, other, *STREAM), "another session")
    assert [content["metadata"] for content in peer.contents(session) if content["type"] == "metadata"] == [
        {"status": "input-required"}
    ]
    first, second, third = gates.contexts
    assert [turn["text"] for turn in second.conversation_history][-1] == "Which?"
    assert third.conversation_history == []
    assert first.context_id == second.context_id != third.context_id
    assert first.sender_id == peer.address


async def test_a_restarted_attempt_closes_its_stream_and_opens_another(
    bridged: StartBridge, peer: ChatPeer, gates: Gates
) -> None:
    first = ["attempt", 1, ["say", "Wrong. "], ["reach", "said"], ["wait", "seen"], ["retry"]]
    async with bridged() as bridge:
        session = peer.say(address_of(bridge), script(first, ["attempt", 2, ["say", "Right."]]))
        await peer.until(lambda: peer.text(session) == "Wrong. ", "the first attempt")
        gates.open("seen")
        await peer.until(ended(peer, session, *STREAM, "metadata", *STREAM), "the second attempt")
    streams = [content["stream_id"] for content in peer.contents(session) if "stream_id" in content]
    assert streams[0] == streams[1] != streams[2] == streams[3]
    assert peer.text(session) == "Wrong. Right."


async def test_a_text_without_an_end_does_not_wait_for_one(bridged: StartBridge, peer: ChatPeer, gates: Gates) -> None:
    async with bridged() as bridge:
        session = peer.say(address_of(bridge), script(["say", "half a sen"], ["wait", "go"], ["say", "tence"]))
        await peer.until(lambda: peer.text(session) == "half a ", "all whole words")
        gates.open("go")
        await peer.until(ended(peer, session, *STREAM), "the end")
    assert peer.text(session) == "half a sentence"


async def test_turns_of_a_session_are_answered_one_after_the_other(bridged: StartBridge, peer: ChatPeer, gates: Gates) -> None:
    async with bridged() as bridge:
        session = peer.say(address_of(bridge), script(["say", "One. "], ["reach", "running"], ["wait", "go"], ["say", "Two."]))
        await gates.reached("running")
        peer.say(address_of(bridge), script(["say", "Three."]), session=session)
        apart = peer.say(address_of(bridge), script(["say", "Apart."]))
        await peer.until(ended(peer, apart, *STREAM), "another session goes on meanwhile")
        await peer.until(lambda: len(peer.acks(session)) == 2, "both are acknowledged")
        gates.open("go")
        await peer.until(ended(peer, session, *STREAM, *STREAM), "both answers")
    assert peer.text(session) == "One. Two.Three."


@pytest.mark.guarantee("G6")
async def test_the_same_message_again_is_acknowledged_and_nothing_else(
    bridged: StartBridge, peer: ChatPeer, gates: Gates, outside: redis.Redis
) -> None:
    msg_id, words = uuid4(), script(["say", "Once."], ["reach", "running"], ["wait", "go"])
    async with bridged() as bridge:
        session = peer.say(address_of(bridge), words, msg_id=msg_id)
        await gates.reached("running")
        peer.say(address_of(bridge), words, session=session, msg_id=msg_id)
        await peer.until(lambda: len(peer.acks(session)) == 2, "acknowledged again")
        gates.open("go")
        await peer.until(ended(peer, session, *STREAM), "the answer")
        await eventually(nothing_owed(outside), "nothing is owed")
    async with bridged() as bridge:  # a new process does not know what only memory held
        peer.say(address_of(bridge), words, session=session, msg_id=msg_id)
        await peer.until(lambda: len(peer.acks(session)) == 3, "acknowledged a third time")
        other = peer.say(address_of(bridge), script(["say", "Alive."]))
        await peer.until(ended(peer, other, *STREAM), "another message")
    assert peer.kinds(session) == STREAM
    assert len(gates.contexts) == 2


async def test_a_message_whose_record_is_lost_is_answered_by_the_first_task(
    bridged: StartBridge, peer: ChatPeer, gates: Gates, outside: redis.Redis
) -> None:
    msg_id, words = uuid4(), script(["say", "Once."])
    async with bridged(payer="one") as bridge:
        session = peer.say(address_of(bridge), words, msg_id=msg_id)
        await peer.until(ended(peer, session, *STREAM), "the answer")
        await eventually(nothing_owed(outside), "nothing is owed")
    outside.delete(*outside.scan_iter("skillstream:connect:*"))
    async with bridged(payer="another") as bridge:
        peer.say(address_of(bridge), words, session=session, msg_id=msg_id)
        await peer.until(ended(peer, session, *STREAM, *STREAM), "the same answer again")
    assert peer.text(session) == "Once.Once."
    assert [context.payer for context in gates.contexts] == ["one"]


async def test_what_says_nothing_is_acknowledged_and_starts_nothing(bridged: StartBridge, peer: ChatPeer, gates: Gates) -> None:
    async with bridged() as bridge:
        session = peer.say(address_of(bridge), content=[{"type": "start-session"}])
        await peer.until(lambda: peer.acks(session), "the acknowledgement")
    assert gates.contexts == []


async def test_resources_go_both_ways(bridged: StartBridge, peer: ChatPeer, gates: Gates) -> None:
    picture = {"uri": "https://example.org/tide.png", "mime_type": "image/png"}
    sent = [
        {"type": "text", "text": script(["snapshot", {"resource": picture}], ["say", "Drawn."])},
        {
            "type": "resource",
            "resource_id": str(uuid4()),
            "resource": {"uri": "https://example.org/a", "metadata": {"role": "x"}},
        },
        {"type": "metadata", "metadata": {"lang": "en"}},
    ]
    async with bridged() as bridge:
        session = peer.say(address_of(bridge), content=sent)
        await peer.until(ended(peer, session, "resource", *STREAM), "the resource, once")
    assert peer.contents(session)[0]["resource"] == {"uri": picture["uri"], "metadata": {"mime_type": "image/png"}}
    assert gates.contexts[0].data == [{"resource": {"uri": "https://example.org/a", "role": "x"}}]
    assert gates.contexts[0].metadata == {"lang": "en"}


async def test_structured_output_without_text_is_told_as_json(bridged: StartBridge, peer: ChatPeer) -> None:
    async with bridged("verbs/plain") as bridge:
        session = peer.say(address_of(bridge), script(["book", "A", 3]))
        await peer.until(ended(peer, session, "text"), "the data")
    assert json.loads(peer.text(session)) == {"title": "A", "pages": 3}


async def test_a_request_that_cannot_be_queued_is_answered(bridged: StartBridge, peer: ChatPeer) -> None:
    async with bridged() as bridge:
        session = peer.say(address_of(bridge), "x" * (2**20 + 1))
        await peer.until(ended(peer, session, "text", "metadata"), "the refusal")
    assert peer.contents(session)[-1]["metadata"]["error"] == "message_too_large"


async def test_a_peer_that_is_away_for_a_while_hears_all_and_one_that_stays_away_hinders_nobody(
    bridged: StartBridge, worker: Worker, gates: Gates, peer: ChatPeer, outside: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    async with CuttingProxy(peer.port) as proxy:
        url = proxy.url.replace("redis://", "http://").replace("/0", "/submit")
        async with bridged(peers={peer.address: url}) as bridge:
            session = peer.say(
                address_of(bridge), script(["say", "One. "], ["reach", "running"], ["wait", "go"], ["say", "Two."])
            )
            await peer.until(lambda: peer.text(session) == "One. ", "the first sentence")
            proxy.cut_up_after = 100
            gates.open("go")
            await peer.until(ended(peer, session, *STREAM), "all of it")
            assert peer.text(session) == "One. Two."
    gone = f"http://127.0.0.1:{free_port()}/submit"
    async with bridged(peers={peer.address: gone}, pace=replace(QUICK_CHAT, patience_s=0.2)) as bridge:
        peer.say(address_of(bridge), script(["say", "Unheard."]))
        await eventually(lambda: len(gates.contexts) == 2, "it runs")
        await eventually(nothing_owed(outside), "it is given up")
    assert "peer_unavailable" in caplog.text


async def test_an_open_stream_is_closed_behind_kill_9_and_all_is_said_in_another(
    worker: Worker, gates: Gates, peer: ChatPeer, chat_port: int, outside: redis.Redis, client: Client
) -> None:
    env = {"SKILLSTREAM_AGENTVERSE_SEED": SEED, "SKILLSTREAM_REDIS_URL": worker.settings.redis_url, "SKILLSTREAM_SHARDS": "4"}
    offered = ("--agent", "verbs/stream", "--listen", f"127.0.0.1:{chat_port}")
    arguments = ("connect", "agentverse", *offered, "--peer", f"{peer.address}={peer.url}")
    with Process(*arguments, env=env) as first:
        address = (await asyncio.to_thread(first.wait_for, "agent verbs is")).split()[-1]
        await asyncio.to_thread(first.wait_for, "envelopes are taken at")
        words = script(["say", "One. "], ["reach", "running"], ["wait", "go"], ["say", "Two."])
        session = peer.say(address, words)
        await peer.until(lambda: peer.text(session) == "One. ", "the first sentence")
        peer.say(address, script(["say", "Three."]), session=session)
        await peer.until(lambda: len(peer.acks(session)) == 2, "the second message is kept")
        first.kill()
    gates.open("go")
    await client.task(gates.contexts[0].task_id).result(BOUND_S)
    with Process(*arguments, env=env):
        await peer.until(ended(peer, session, *STREAM, *STREAM, *STREAM), "all of it", 20)
        await eventually(nothing_owed(outside), "nothing is owed")
    assert peer.text(session) == "One. One. Two.Three."
    streams = [content["stream_id"] for content in peer.contents(session) if "stream_id" in content]
    assert [streams[0], streams[2], streams[4]] == [streams[1], streams[3], streams[5]]
    assert len(set(streams)) == 3
    assert len(gates.contexts) == 2
