"""Making our agents known at Agentverse, so that others find their endpoint in its almanac."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from urllib.parse import urlsplit

from uagents_core.config import AgentverseConfig

from skillstream_router.connect.backoff import Backoff
from skillstream_router.connect.broker import ConnectBroker
from skillstream_router.connect.persistence import persist
from skillstream_schemas.card import AgentCard
from skillstream_schemas.connect_errors import PeerRefused, PeerUnavailable

from .identity import ChatAddress, ChatAgent, seed_of
from .library import AgentverseRequestError, RegistrationRequestCredentials, register_chat_agent

log = logging.getLogger(__name__)
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 300.0


def agentverse_config(url: str) -> AgentverseConfig:
    """Where Agentverse is: the public one, or the one at `url`."""
    parts = urlsplit(url)
    return AgentverseConfig(base_url=parts.netloc, http_prefix=parts.scheme) if url else AgentverseConfig()


class Registrar:
    """Responsible for registering each agent with its card and public endpoint; tried until Agentverse takes or refuses it."""

    def __init__(self, address: ChatAddress, agents: Mapping[str, ChatAgent], broker: ConnectBroker) -> None:
        self.refused: dict[str, PeerRefused] = {}
        self.registered = asyncio.Event()
        self._address, self._agents, self._broker = address, agents, broker

    def __repr__(self) -> str:
        return f"<Registrar agents={len(self._agents)} refused={sorted(self.refused)} done={self.registered.is_set()}>"

    async def run(self) -> None:
        """Registers all agents, then waits until it is cancelled."""
        await asyncio.gather(*(self._register(agent) for agent in self._agents.values()))
        self.registered.set()
        await asyncio.Event().wait()

    async def _register(self, agent: ChatAgent) -> None:
        backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        while True:
            try:
                cards = await persist("a card", lambda: self._broker.cards(agent.name))
                await asyncio.to_thread(self._call, agent, cards.get(agent.name))
                log.info("%s is registered at Agentverse", agent.name)
                return
            except PeerRefused as error:
                log.error("%s is not registered: %s", agent.name, error)
                self.refused[agent.name] = error
                return
            except PeerUnavailable as error:
                log.warning("%s is not registered yet: %s", agent.name, error)
                await asyncio.sleep(backoff.next_s())

    def _call(self, agent: ChatAgent, card: AgentCard | None) -> None:
        # without its tracking, peers post to our endpoint, and not through Agentverse's proxy
        try:
            register_chat_agent(
                agent.name, self._address.endpoint, active=True, track_interactions=False,
                credentials=RegistrationRequestCredentials(
                    agentverse_api_key=self._address.agentverse_key, agent_seed_phrase=seed_of(self._address.seed, agent.name)
                ),
                description=(card.description if card else "")[:300], readme=_readme(card),
                agentverse_config=agentverse_config(self._address.agentverse),
            )  # fmt: skip
        except AgentverseRequestError as error:
            status = getattr(getattr(error.from_exc, "response", None), "status_code", None)
            kind = PeerRefused if status is not None and 400 <= status < 500 and status != 429 else PeerUnavailable
            raise kind(f"Agentverse: {str(error)[:300]}") from None
        except OSError as error:  # what the library does not map; the base of all errors of its HTTP client
            raise PeerUnavailable(f"Agentverse: {type(error).__name__}") from None


def _readme(card: AgentCard | None) -> str:
    if card is None:
        return ""
    skills = "\n".join(f"- **{skill.name}**: {skill.description}" for skill in card.skills)
    return f"# {card.name}\n\n{card.description}\n\n{skills}\n"
