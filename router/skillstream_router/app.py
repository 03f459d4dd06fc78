"""The router: wires the roles, starts and stops them in order."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from skillstream.breaking_off import break_off
from skillstream.clock import Clock
from skillstream.process_name import process_name
from skillstream_schemas.errors import BrokerRefused, BrokerUnavailable, MissingExtra
from skillstream_schemas.settings import Settings

from .broker import RouterBroker
from .inbox import Inbox, ReadingPace
from .lifecycle import Lifecycle
from .projection import Ring
from .projector import Projector
from .reaper import Reaper, ReapingPace
from .reconciler import Reconciler, ReconcilingPace
from .settling import Settler
from .store import Store

if TYPE_CHECKING:
    from .http import HttpServer

log = logging.getLogger(__name__)
_PROJECTORS = 4
"""Batches under way at once: with two the database waited for the event loop, and the event loop for the broker."""
_LAST_RINGS_S = 5.0
_LEAVE_S = 1.0
"""With the gateway's 3 s, a router whose broker is away ends within 10 s, the time that supervisors give."""


@dataclass(frozen=True, slots=True)
class RouterPace:
    """How often a router does what is not asked of it by a ring."""

    reading: ReadingPace = field(default_factory=ReadingPace)
    reaping: ReapingPace = field(default_factory=ReapingPace)
    reconciling: ReconcilingPace = field(default_factory=ReconcilingPace)


class Router(Lifecycle):
    """Responsible for one router process; several may run on one broker and one database.

    Start order: the broker; the database, which is made where there is none, so that a router without a broker leaves
    none behind; projectors, reaper and reconciler; the inbox, since nothing may be read that cannot be kept; the HTTP
    gateway last, where the settings name an address, since callers may come at once. Stop order: the gateway first, so
    that no new requests come and followers go elsewhere; the inbox, so that no new rings come; the projectors once all
    that was read is acknowledged (what is not, comes to another router); the other roles; the broker; the database last.

    `name` is unique among the routers of a broker.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        name: str | None = None,
        clock: Clock | None = None,
        pace: RouterPace | None = None,
    ) -> None:
        super().__init__()
        self.settings = settings or Settings.from_env(os.environ)
        self.name = name or process_name()
        pace = pace or RouterPace()
        clock = clock or Clock()
        self._rings: asyncio.Queue[list[Ring]] = asyncio.Queue(maxsize=1)
        self._store = Store(self.settings)
        self._broker = RouterBroker(self.settings, self.name)
        settler = Settler(self._broker)
        self._projector = Projector(self._broker, self._store, settler, self._rings, clock, self._look)
        recorded = self._projector.ended_lately
        self._reaper = Reaper(self._broker, self._store, settler, clock, self._projector.project, recorded, pace.reaping)
        self._reconciler = Reconciler(self._broker, self._store, self._projector.project, self._look, pace.reconciling)
        self._inbox = Inbox(self._broker, self._rings, pace.reading)
        self.http = None if self.settings.http is None else _http_server(self.settings, clock)
        self._serving: list[asyncio.Task[None]] = []
        self._reading: list[asyncio.Task[None]] = []
        self._projecting: list[asyncio.Task[None]] = []
        self._watching: list[asyncio.Task[None]] = []

    def __repr__(self) -> str:
        return f"<Router {self.name} {self._inbox!r} {self._projector!r} {self._reaper!r}>"

    async def start(self) -> None:
        """Starts all roles; raises BrokerUnavailable, ShardsMismatch, DatabaseUnavailable, OpenGateway, AddressInUse."""
        try:
            await self._broker.open()
            await self._store.open()
        except BaseException:
            await self._broker.close()
            await self._store.close()
            raise
        self._projecting = [_role(self._projector.run()) for _ in range(_PROJECTORS)]
        self._watching = [_role(self._reaper.run()), _role(self._reconciler.run())]
        self._reading = [_role(self._inbox.run())]
        if self.http is not None:
            try:
                await self.http.start()
            except BaseException:
                await self._shut_down()
                raise
            self._serving = [_role(self.http.run())]

    async def until_reading(self) -> None:
        """Waits until this router waits for rings."""
        await self._inbox.reading.wait()

    def _running(self) -> list[asyncio.Task[None]]:
        return [*self._serving, *self._reading, *self._projecting, *self._watching]

    async def _shut_down(self) -> None:
        await break_off(*self._serving)
        if self.http is not None:
            await self.http.stop()
        await break_off(*self._reading)
        self._broker.close_reader()  # the read under way would be given rings that nobody works off
        last_rings = asyncio.ensure_future(self._work_off())
        await asyncio.wait([last_rings], timeout=_LAST_RINGS_S)
        await break_off(last_rings, *self._projecting)
        await break_off(*self._watching)
        try:
            async with asyncio.timeout(_LEAVE_S):
                await self._broker.leave_groups()
        except (BrokerUnavailable, BrokerRefused, TimeoutError) as error:
            log.warning("the name %s stays in the groups: %s", self.name, str(error) or "the broker is away")
        await self._broker.close()
        await self._store.close()

    async def _work_off(self) -> None:
        """Waits until all that was given to this router is acknowledged, also the batch that found no room in the queue."""
        await self._rings.join()
        try:
            await self._inbox.hand_on_pending()
        except (BrokerUnavailable, BrokerRefused) as error:
            log.warning("rings may stay pending until another router takes them over: %s", error)
        await self._rings.join()

    def _look(self, task_ids: Iterable[str]) -> None:
        self._reaper.look(task_ids)


def _http_server(settings: Settings, clock: Clock) -> HttpServer:
    try:
        from .http import HttpServer
    except ModuleNotFoundError as error:
        raise MissingExtra.of(error, "HTTP needs", "http") from None
    return HttpServer(settings, clock)


def _role(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    return asyncio.get_running_loop().create_task(work)
