"""The hub connector: one link, one desk and a courier for each execution, for each agent."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence

import httpx

from skillstream import Client
from skillstream.breaking_off import break_off
from skillstream.clock import Clock
from skillstream_router.connect.broker import ConnectBroker
from skillstream_router.connect.deliveries import Deliveries
from skillstream_router.connect.selection import AgentSkill, select
from skillstream_router.lifecycle import Lifecycle
from skillstream_schemas.settings import Settings

from .courier import Courier
from .desk import Desk
from .execution import Execution
from .link import HubLink, HubPace
from .sign_in import HubAddress

log = logging.getLogger(__name__)


class HubConnector(Lifecycle):
    """Responsible for one connector process: agents of this broker at one hub. One process serves an agent, no second one.

    `agents` are names, or `name/skill` to say which skill runs where the hub names none; without any, all agents known on
    the broker. Start order: the broker; deliveries and desks, which take up what was owed; the links last. Stop order: the
    links first, so that no call comes that nobody keeps; couriers, whose work the next process goes on with; the broker.
    `run` raises HubRefused where the hub will never take an agent.
    """

    def __init__(
        self,
        address: HubAddress,
        agents: Sequence[str] = (),
        settings: Settings | None = None,
        *,
        payer: str | None = None,
        visibility: str = "private",
        pace: HubPace | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__()
        self.settings = settings or Settings.from_env(os.environ)
        self._address, self._names, self._payer, self._visibility = address, tuple(agents), payer, visibility
        self._pace, self._clock = pace or HubPace(), clock or Clock()
        self._broker = ConnectBroker(self.settings)
        self._client = Client(settings=self.settings, broker=self._broker)
        self._http = httpx.AsyncClient(follow_redirects=False)
        self._links: list[HubLink] = []
        self._roles: list[asyncio.Task[None]] = []
        self._couriers: set[asyncio.Task[None]] = set()
        self._started = asyncio.Event()

    def __repr__(self) -> str:
        return f"<HubConnector {self._address.url} {self._links!r} under way={len(self._couriers)}>"

    @property
    def agents(self) -> list[str]:
        """The agents that are offered, once it has started."""
        return [link.agent for link in self._links]

    async def start(self) -> None:
        """Starts all roles; raises BrokerUnavailable, ShardsMismatch, UnknownAgent, UnknownSkill."""
        await self._broker.open()
        try:
            chosen = select(await self._broker.cards(), self._names)
        except BaseException:
            await self._broker.close()
            raise
        for agent in chosen:
            self._start_agent(agent)
        self._started.set()

    async def until_registered(self) -> None:
        """Waits until all agents are registered."""
        await self._started.wait()
        await asyncio.gather(*(link.up.wait() for link in self._links))

    def _start_agent(self, agent: AgentSkill) -> None:
        deliveries = Deliveries(self._broker, self._address.link(agent.name), Execution)

        def begin(execution: Execution) -> None:
            courier = Courier(
                execution, self._client, link, deliveries, self._clock, self._pace, self._payer, desk.changed, desk.ended
            )
            task = asyncio.create_task(courier.run(), name=f"courier of {execution.hub_task}")
            self._couriers.add(task)
            task.add_done_callback(self._courier_done)

        desk = Desk(self._broker, deliveries, agent.skill, self._clock, begin)
        link = HubLink(self._address, agent.name, self._broker, self._http, self._pace, self._visibility, desk.put)
        desk.link = link
        self._links.append(link)
        self._roles += [asyncio.create_task(role.run()) for role in (link, desk, deliveries)]

    def _courier_done(self, task: asyncio.Task[None]) -> None:
        self._couriers.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s ended: what it owes is taken up at the next start", task.get_name(), exc_info=error)

    def _running(self) -> list[asyncio.Task[None]]:
        return self._roles

    async def _shut_down(self) -> None:
        await break_off(*self._roles, *self._couriers)
        await self._http.aclose()
        await self._client.close()
        await self._broker.close()
