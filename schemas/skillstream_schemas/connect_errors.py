"""Errors of the connectors to other agent networks; the rest of the tree stands in errors.py."""

from __future__ import annotations

from .errors import SkillstreamError


class HubUnavailable(SkillstreamError):
    """The hub could not be reached, did not answer, or broke the connection off."""

    code = "hub_unavailable"
    hint = "the connector tries again by itself; check URL and network if it lasts"


class HubRefused(SkillstreamError):
    """The hub does not take this agent or this key, however often it is asked."""

    code = "hub_refused"
    hint = "check the key, and who owns the agent's name at the hub"


class EnvelopeRefused(SkillstreamError):
    """An envelope is not what it says: tampered, unsigned, expired, for somebody else, or no chat message."""

    code = "envelope_refused"
    hint = "the sender's library or clock is wrong, or somebody plays a sender"


class PeerUnavailable(SkillstreamError):
    """A chat agent could not be found or reached, or did not answer in time."""

    code = "peer_unavailable"
    hint = "it is tried again for a while; check that the agent runs and its endpoint is known"


class PeerRefused(SkillstreamError):
    """A chat agent does not take what is sent to it."""

    code = "peer_refused"
    hint = "the text has the agent's own words"
