"""What the bridge refuses, in the network's own form; behind each case it answers as before."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import httpx
import pytest
import redis
from uagents_core.contrib.protocols.chat import ChatAcknowledgement, ChatMessage, TextContent
from uagents_core.envelope import Envelope
from uagents_core.identity import Identity
from uagents_core.models import ErrorMessage, Model

from skillstream_router.connect.agentverse import ChatAddress, ChatBridge
from skillstream_router.connect.agentverse.envelopes import ACKNOWLEDGEMENT_DIGEST, MESSAGE_DIGEST, PROTOCOL_DIGEST, seal
from skillstream_router.connect.agentverse.identity import ChatAgent, chat_agents, stable_uuid
from skillstream_router.connect.selection import AgentSkill
from skillstream_schemas.errors import InvalidSettings
from skillstream_schemas.settings import Settings
from skillstream_worker import Worker
from tests.support.cutting_proxy import CuttingProxy
from tests.support.verbs import Gates, script

from .chat_peer import ChatPeer
from .conftest import SEED, StartBridge

SENDER = Identity.from_seed("a sender of the tests", 3)
TEXT = {"type": "text", "text": script(["say", "never"])}
Change = Callable[[Envelope], Any]


def envelope(target: str, payload: Any, *, digest: str = MESSAGE_DIGEST, sign: bool = True, **fields: Any) -> Envelope:
    """An envelope of the tests' sender; `payload` is JSON, or text as it stands."""
    made = Envelope(
        version=1, sender=SENDER.address, target=target, session=uuid4(), schema_digest=digest,
        expires=int(time.time()) + 30,
    ).model_copy(update=fields)  # fmt: skip
    made.encode_payload(payload if isinstance(payload, str) else json.dumps(payload))
    if sign:
        made.sign(SENDER)
    return made


def raw(made: Envelope) -> bytes:
    """The envelope as it is sent."""
    return str(made.model_dump_json()).encode()


def message(*contents: Any, **fields: Any) -> dict[str, Any]:
    """A chat message as JSON."""
    made: dict[str, Any] = {"timestamp": "2026-01-01T00:00:00Z", "msg_id": str(uuid4()), "content": list(contents or [TEXT])}
    return made | fields


def tampered(change: Change) -> Callable[[str], bytes]:
    """A signed envelope that somebody changed afterwards."""

    def make(target: str) -> bytes:
        made = envelope(target, message())
        change(made)
        return raw(made)

    return make


def content(*contents: Any, **fields: Any) -> Callable[[str], bytes]:
    """A rightly signed envelope with contents that do not fit."""
    return lambda target: raw(envelope(target, message(*contents, **fields)))


def signed(payload: str) -> Callable[[str], bytes]:
    """A rightly signed envelope with this for a payload."""

    def make(target: str) -> bytes:
        made = envelope(target, "", sign=False)
        made.payload = payload
        made.sign(SENDER)
        return raw(made)

    return make


def set_field(name: str, value: Any) -> Change:
    return lambda made: setattr(made, name, value)


REFUSED: dict[str, Callable[[str], bytes]] = {
    "payload changed": tampered(lambda made: made.encode_payload(json.dumps(message()))),
    "session changed": tampered(set_field("session", uuid4())),
    "expiry changed": tampered(lambda made: set_field("expires", made.expires + 300)(made)),
    "no signature": tampered(set_field("signature", None)),
    "another's signature": tampered(lambda made: made.sign(Identity.generate())),
    "no bech32": tampered(set_field("signature", "sig1nonsense")),
    "sender is no key": tampered(set_field("sender", "agent1" + "q" * 59)),
    "sender is a user": tampered(set_field("sender", "user1" + "q" * 60)),
    "negative expiry": tampered(set_field("expires", -1)),
    "expired": lambda target: raw(envelope(target, message(), expires=int(time.time()) - 1)),
    "for somebody else": lambda target: raw(envelope(str(SENDER.address), message())),
    "unknown schema": lambda target: raw(envelope(target, message(), digest="model:" + "0" * 64)),
    "payload is no object": lambda target: raw(envelope(target, [1])),
    "payload is no JSON": lambda target: raw(envelope(target, "{")),
    "payload is deep": lambda target: raw(envelope(target, "[" * 100_000)),
    "payload is no UTF-8": signed(base64.b64encode(b"\xff").decode()),
    "payload is no base64": signed("%"),
    "extra key in a text": content({**TEXT, "stream_id": str(uuid4())}),
    "extra key in the message": content(more=1),
    "unknown content": content({"type": "song", "text": "la"}),
    "message id of another version": content(msg_id="00000000-0000-1000-8000-000000000000"),
    "lone surrogate": content({"type": "text", "text": "\ud800"}),
    "nested metadata": content({"type": "metadata", "metadata": {"a": {"b": "c"}}}),
    "no JSON": lambda target: b"{",
    "no UTF-8": lambda target: b"\xff\xfe",
    "no envelope": lambda target: b'{"version": 1}',
    "deep": lambda target: b"[" * 100_000,
    "empty": lambda target: b"",
}  # fmt: skip


@pytest.mark.guarantee("G13")
async def test_each_refusal_says_why_and_the_bridge_is_alive_behind_it(
    bridged: StartBridge, peer: ChatPeer, gates: Gates
) -> None:
    async with bridged() as bridge, httpx.AsyncClient() as http:
        (address,) = bridge.agents
        for name, make in REFUSED.items():
            answer = await http.post(bridge.url, content=make(address), headers={"content-type": "application/json"})
            assert answer.status_code == 400, f"{name}: {answer.status_code} {answer.text}"
            assert answer.json()["error"], name
            session = peer.say(address, script(["say", "Alive."]))
            await peer.until(lambda session=session: "end-stream" in peer.kinds(session), f"an answer behind: {name}")
        large = await http.post(bridge.url, content=b"x" * (9 * 2**20))
        elsewhere = await http.post(bridge.url.replace("/submit", "/else"))
        probe = await http.head(bridge.url, headers={"x-uagents-address": address})
        session = peer.say(address, script(["say", "Alive."]))
        await peer.until(lambda: "end-stream" in peer.kinds(session), "an answer behind all of it")
    assert (large.status_code, elsewhere.status_code) == (413, 404)
    assert (probe.status_code, probe.headers["x-uagents-status"]) == (200, "ready")
    assert len(gates.contexts) == len(REFUSED) + 1


async def test_what_is_no_message_for_us_is_taken_and_starts_nothing(bridged: StartBridge, gates: Gates) -> None:
    async with bridged() as bridge, httpx.AsyncClient() as http:
        (address,) = bridge.agents
        acknowledgement = {"timestamp": "2026-01-01T00:00:00Z", "acknowledged_msg_id": str(uuid4())}
        for digest, payload in (
            (ACKNOWLEDGEMENT_DIGEST, acknowledgement),
            (Model.build_schema_digest(ErrorMessage), {"error": "?"}),
        ):
            body = envelope(address, payload, digest=digest).model_dump_json()
            assert (await http.post(bridge.url, content=body)).status_code == 200
    assert gates.contexts == []


async def test_a_message_without_an_id_is_known_again_by_its_envelope(bridged: StartBridge, peer: ChatPeer, gates: Gates) -> None:
    payload = {"timestamp": "2026-01-01T00:00:00Z", "content": [{"type": "text", "text": script(["say", "Once."])}]}
    async with bridged() as bridge, httpx.AsyncClient() as http:
        (address,) = bridge.agents
        body = envelope(address, payload).model_dump_json()
        for _ in range(2):
            assert (await http.post(bridge.url, content=body)).status_code == 200
        session = peer.say(address, script(["say", "Behind."]))
        await peer.until(lambda: "end-stream" in peer.kinds(session), "an answer behind it")
    assert len(gates.contexts) == 2


async def test_what_cannot_be_kept_is_not_taken(settings: Settings, worker: Worker, chat_port: int, gates: Gates) -> None:
    port = int(settings.redis_url.rsplit(":", 1)[1].partition("/")[0])
    async with CuttingProxy(port) as proxy, httpx.AsyncClient() as http:
        through = settings.changed(redis_url=proxy.url, patience_s=0.5, answer_timeout_s=1, connect_timeout_s=1)
        async with ChatBridge(ChatAddress(SEED, port=chat_port), ["verbs/stream"], through) as bridge:
            proxy.swallows = True
            (address,) = bridge.agents
            answer = await http.post(bridge.url, content=envelope(address, message()).model_dump_json(), timeout=10)
            proxy.swallows = False
            proxy.drop()
    assert (answer.status_code, answer.json()) == (503, {"error": "broker_unavailable"})


def test_digests_are_those_of_the_network() -> None:
    assert MESSAGE_DIGEST == "model:2601825997203ee07dbb9ff6e7c71ae7bdaf6a7c8b817361f2f88f4b29c68d0c"
    assert ACKNOWLEDGEMENT_DIGEST == "model:741eb75692abbeb43c131e364ad939af23f14e8288ba0ec3df130843ef79bd7f"
    assert PROTOCOL_DIGEST == "proto:30a801ed3a83f9a0ff0a9f1e6fe958cb91da1fc2218b153df7b6cbf87bd33d62"


def test_what_we_seal_verifies_and_expires() -> None:
    agent = ChatAgent("a", "chat", SENDER)
    sealed = Envelope.model_validate_json(seal(agent, agent.address, uuid4(), ChatMessage([TextContent("hi")]), 1000))
    assert sealed.verify()
    assert sealed.expires == 1030
    acknowledgement = seal(agent, agent.address, uuid4(), ChatAcknowledgement(uuid4()), 1000)
    assert Envelope.model_validate_json(acknowledgement).schema_digest == ACKNOWLEDGEMENT_DIGEST


def test_addresses_are_stable_and_each_agent_has_its_own() -> None:
    chosen = [AgentSkill("a", "x"), AgentSkill("b", "x")]
    assert list(chat_agents(SEED, chosen)) == list(chat_agents(SEED, chosen))
    assert len({*chat_agents(SEED, chosen), *chat_agents(SEED + "!", chosen)}) == 4
    assert stable_uuid("a").version == 4
    assert SEED not in repr(ChatAddress(SEED))


@pytest.mark.parametrize("wrong", [{"seed": "short"}, {"peers": {"me": "http://x"}}, {"peers": {"agent1x": "ftp://x"}}])
def test_settings_that_cannot_be_used_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettings):
        ChatAddress(**({"seed": SEED} | wrong))


async def test_an_address_in_use_is_said(settings: Settings, worker: Worker, bridged: StartBridge, outside: redis.Redis) -> None:
    async with bridged() as bridge:
        with pytest.raises(InvalidSettings, match="in use"):
            await ChatBridge(ChatAddress(SEED, port=int(bridge.url.split(":")[2].split("/")[0])), ["verbs"], settings).start()
