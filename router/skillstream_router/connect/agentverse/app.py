"""The chat bridge: wires reception, post and endpoint."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

import httpx

from skillstream import Client
from skillstream.breaking_off import break_off
from skillstream.clock import Clock
from skillstream_router.connect.broker import ConnectBroker
from skillstream_router.connect.selection import select
from skillstream_router.lifecycle import Lifecycle
from skillstream_schemas.settings import Settings

from .asking import Asking
from .endpoint import Endpoint
from .identity import ChatAddress, ChatAgent, chat_agents
from .peers import Peers
from .post import ChatPace, Post
from .reception import Reception
from .registration import Registrar


class ChatBridge(Lifecycle):
    """Responsible for one bridge process: agents of this broker, each with an address of its own in the chat network.

    `agents` are names, or `name/skill`; without any, all that are known on the broker. Start order: the broker; the
    conversations that an earlier process owes; the endpoint; the registration last. Stop order: questions of skills, then the
    endpoint, so that nothing is taken that nobody answers; the conversations, which the next process goes on with; the broker.
    """

    def __init__(
        self,
        address: ChatAddress,
        agents: Sequence[str] = (),
        settings: Settings | None = None,
        *,
        payer: str | None = None,
        pace: ChatPace | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__()
        self.settings = settings or Settings.from_env(os.environ)
        self.agents: dict[str, ChatAgent] = {}
        self._address, self._names, self._payer = address, tuple(agents), payer
        self._pace, self._clock = pace or ChatPace(), clock or Clock()
        self._broker = ConnectBroker(self.settings)
        self._client = Client(settings=self.settings, broker=self._broker)
        self._http = httpx.AsyncClient(follow_redirects=False)
        self._post = Post(self._http, Peers(address.peers, address.agentverse), self._clock, self._pace)
        self._asking: Asking | None = None
        self._reception: Reception | None = None
        self._endpoint: Endpoint | None = None
        self.registrar: Registrar | None = None
        self._serving: asyncio.Task[None] | None = None
        self._others: list[asyncio.Task[None]] = []
        self._started = asyncio.Event()

    def __repr__(self) -> str:
        return f"<ChatBridge {[agent.name for agent in self.agents.values()]} {self._reception!r} {self._endpoint!r}>"

    @property
    def url(self) -> str:
        """Where envelopes are taken, once it has started."""
        assert self._endpoint is not None, "it was not started"
        return self._endpoint.url

    async def start(self) -> None:
        """Starts; raises BrokerUnavailable, ShardsMismatch, UnknownAgent, UnknownSkill, InvalidSettings."""
        try:
            await self._broker.open()
            self.agents = chat_agents(self._address.seed, select(await self._broker.cards(), self._names))
            asking = self._asking = Asking(self.agents, self._broker, self._post, self._address.ask_key)
            reception = self._reception = Reception(
                self.agents, self._client, self._broker, self._post, self._clock, self._pace, self._payer, asking.takes
            )
            self._others = [asyncio.create_task(deliveries.run()) for deliveries in reception.deliveries.values()]
            await reception.begin_owed()
            self._endpoint = Endpoint(
                self._address.host, self._address.port, self.agents, reception.take, self._clock,
                self.settings.limits.message_bytes, asking.routes,
            )  # fmt: skip
            self._endpoint.listen()
        except BaseException:
            await self._shut_down()
            raise
        self._serving = asyncio.create_task(self._endpoint.run())
        if self._address.endpoint:
            self.registrar = Registrar(self._address, self.agents, self._broker)
            self._others.append(asyncio.create_task(self.registrar.run()))
        self._started.set()

    async def until_listening(self) -> None:
        """Waits until envelopes are taken."""
        await self._started.wait()

    def _running(self) -> list[asyncio.Task[None]]:
        assert self._serving is not None
        return [self._serving, *self._others]

    async def _shut_down(self) -> None:
        if self._asking is not None:
            await self._asking.close()  # its answers are requests under way: the endpoint would wait for them
        if self._endpoint is not None and self._serving is not None:
            self._endpoint.stop()
            await asyncio.wait([self._serving])
        if self._reception is not None:
            await self._reception.close()
        await break_off(*self._others)
        await self._http.aclose()
        await self._client.close()
        await self._broker.close()
