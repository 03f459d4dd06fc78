"""Who the agents are in the chat network: addresses, keys, and UUIDs that the protocol takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from urllib.parse import urlsplit
from uuid import UUID

from uagents_core.identity import Identity

from skillstream_router.connect.selection import AgentSkill
from skillstream_schemas.errors import InvalidSettings

_LEAST_SEED_CHARS = 16


@dataclass(frozen=True, slots=True)
class ChatAddress:
    """Where the bridge listens, the secret `seed` that its agents' keys are made from, and endpoints of peers by address.

    A peer that is not among `peers` is looked up in the almanac of `agentverse` (a URL; empty: the public one). With the public
    URL `endpoint` of the bridge and the account's `agentverse_key`, the agents are registered there. `ask_key` opens the
    interface over which skills ask chat agents; empty: there is none.
    """

    seed: str = field(repr=False)
    host: str = "127.0.0.1"
    port: int = 8001
    peers: Mapping[str, str] = field(default_factory=dict)
    agentverse: str = ""
    endpoint: str = ""
    agentverse_key: str = field(default="", repr=False)
    ask_key: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        """Raises InvalidSettings for a short seed, for what is no URL, and for half of what a registration needs."""
        if len(self.seed) < _LEAST_SEED_CHARS:
            raise InvalidSettings(
                f"the seed has fewer than {_LEAST_SEED_CHARS} characters: set SKILLSTREAM_AGENTVERSE_SEED, or name a file"
            )
        for url in filter(None, (self.agentverse, self.endpoint)):
            if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc:
                raise InvalidSettings(f"{url[:200]} is not a URL")
        if bool(self.endpoint) != bool(self.agentverse_key):
            raise InvalidSettings("to register, both --endpoint and SKILLSTREAM_AGENTVERSE_KEY are needed")
        for address, url in self.peers.items():
            if not address.startswith("agent1") or urlsplit(url).scheme not in ("http", "https"):
                raise InvalidSettings(f"{address[:70]}={url[:200]} is not ADDRESS=URL of an agent")


@dataclass(frozen=True, slots=True)
class ChatAgent:
    """An agent of this broker with its key; `link` is the name under which what it owes is kept."""

    name: str
    skill: str
    identity: Identity

    @property
    def address(self) -> str:
        """Its address in the chat network."""
        return str(self.identity.address)

    @property
    def link(self) -> str:
        """The name of this agent's deliveries."""
        return f"chat-{sha256(self.address.encode()).hexdigest()[:24]}"


def seed_of(seed: str, agent: str) -> str:
    """The seed phrase of one agent: the same seed and name always give the same address."""
    return f"{seed}/{agent}"


def chat_agents(seed: str, chosen: Sequence[AgentSkill]) -> dict[str, ChatAgent]:
    """The chosen agents by address."""
    agents = (ChatAgent(each.name, each.skill, Identity.from_seed(seed_of(seed, each.name), 0)) for each in chosen)
    return {agent.address: agent for agent in agents}


def digest(*parts: object) -> str:
    """Forty hexadecimal digits that stand for these parts."""
    return sha256("|".join(map(str, parts)).encode(errors="surrogatepass")).hexdigest()[:40]


def stable_uuid(*parts: object) -> UUID:
    """A UUID made from these parts, stamped as version 4: the protocol takes no other."""
    return UUID(bytes=sha256("|".join(map(str, parts)).encode(errors="surrogatepass")).digest()[:16], version=4)
