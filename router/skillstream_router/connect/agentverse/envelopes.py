"""Envelopes: opened only when they are what they say, and sealed. No I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from pydantic import ValidationError
from uagents_core.contrib.protocols.chat import ChatAcknowledgement, ChatMessage, chat_protocol_spec
from uagents_core.envelope import Envelope
from uagents_core.models import ERROR_MESSAGE_DIGEST, ErrorMessage, Model

from skillstream_schemas.connect_errors import EnvelopeRefused
from skillstream_schemas.errors import MalformedEntry
from skillstream_schemas.json_text import check_json
from skillstream_schemas.request import describe, read_json

from .identity import ChatAgent, stable_uuid

MESSAGE_DIGEST = Model.build_schema_digest(ChatMessage)
ACKNOWLEDGEMENT_DIGEST = Model.build_schema_digest(ChatAcknowledgement)
PROTOCOL_DIGEST: str = chat_protocol_spec.digest
EXPIRES_S = 30
_ADDRESS_CHARS = 65
_MODELS: dict[str, type[Model]] = {
    MESSAGE_DIGEST: ChatMessage,
    ACKNOWLEDGEMENT_DIGEST: ChatAcknowledgement,
    ERROR_MESSAGE_DIGEST: ErrorMessage,
}


@dataclass(frozen=True, slots=True)
class Opened:
    """A verified envelope: who wrote to which of our agents, in which session, what."""

    agent: ChatAgent
    sender: str
    session: UUID
    content: ChatMessage | ChatAcknowledgement | ErrorMessage


def open_envelope(body: bytes, agents: Mapping[str, ChatAgent], now_s: float) -> Opened:
    """Verifies an envelope and reads what is in it; `agents` are ours by address. Raises EnvelopeRefused."""
    try:
        check_json(body.decode())
        envelope = Envelope.model_validate_json(body)
    except (ValidationError, ValueError, RecursionError) as error:
        raise EnvelopeRefused(describe(error) if isinstance(error, ValidationError) else "not an envelope") from None
    agent = agents.get(envelope.target)
    if agent is None:
        raise EnvelopeRefused("unable to route envelope: no such agent here")
    if len(envelope.sender) != _ADDRESS_CHARS or not envelope.sender.startswith("agent1"):
        raise EnvelopeRefused("the sender is no agent: nobody else's signature can be verified")
    if envelope.expires is not None and envelope.expires < now_s:
        raise EnvelopeRefused("the envelope has expired")
    _verify(envelope)
    model = _MODELS.get(envelope.schema_digest)
    if model is None:
        raise EnvelopeRefused("the message is of no kind that the chat protocol has")
    content = _content(envelope, model)
    assert isinstance(content, (ChatMessage, ChatAcknowledgement, ErrorMessage))
    return Opened(agent, envelope.sender, envelope.session, content)


def seal(agent: ChatAgent, target: str, session: UUID, content: ChatMessage | ChatAcknowledgement, now_s: float) -> bytes:
    """A signed envelope with a message in it."""
    envelope = Envelope(
        version=1, sender=agent.address, target=target, session=session,
        schema_digest=MESSAGE_DIGEST if isinstance(content, ChatMessage) else ACKNOWLEDGEMENT_DIGEST,
        protocol_digest=PROTOCOL_DIGEST, expires=int(now_s) + EXPIRES_S,
    )  # fmt: skip
    envelope.encode_payload(content.model_dump_json())
    envelope.sign(agent.identity)
    sealed: bytes = envelope.model_dump_json().encode()
    return sealed


def _verify(envelope: Envelope) -> None:
    try:
        valid = envelope.verify()
    except Exception as error:  # whatever the libraries below raise for bytes that are no key, no signature, no number
        raise EnvelopeRefused(f"the signature does not hold: {type(error).__name__}") from None
    if not valid:
        raise EnvelopeRefused("the signature does not hold")


def _content(envelope: Envelope, model: type[Model]) -> Model:
    try:
        payload = read_json("payload", envelope.decode_payload())
        if not isinstance(payload, dict):
            raise ValueError("no object")
        if model is ChatMessage and "msg_id" not in payload:
            payload["msg_id"] = str(stable_uuid(envelope.sender, envelope.session, json.dumps(payload)))
        return model.parse_obj(payload)
    except MalformedEntry as error:
        raise EnvelopeRefused(error.message) from None
    except (ValueError, TypeError) as error:  # the models' own errors are ValueErrors; fields too many are TypeErrors
        raise EnvelopeRefused(f"the message does not fit its schema: {type(error).__name__}") from None
