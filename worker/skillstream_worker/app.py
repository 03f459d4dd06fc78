"""The worker: wires the roles, starts and stops them in order."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Coroutine, Sequence
from typing import Any, Self

from skillstream import Client
from skillstream.breaking_off import break_off
from skillstream.clock import Clock
from skillstream.process_name import process_name
from skillstream_schemas.settings import Settings

from .agent import Agent
from .announcer import Announcer
from .attempt import Attempt
from .broker import ClaimedJob, WorkerBroker
from .claimer import Claimer
from .listener import Listener
from .outcome import Outcome, StopCause
from .plain_functions import PlainFunctions
from .renewer import Renewer
from .services import Services
from .settler import Settler
from .slots import Slots
from .strays import Strays
from .watchdog import Watchdog

log = logging.getLogger(__name__)
_HAND_BACK_S = 5.0


class Worker:
    """Responsible for one worker process: claims and runs tasks of its agents until it is stopped.

    Start order: connection, cards (so that clients find the skills), renewer and listener (nothing may be claimed
    that is not renewed), claimers last. Stop order: claimers first, so that nothing new begins; running attempts get
    the grace period, then are handed back; the settler when no attempt can ask it for more; then the worker leaves
    the cards, where no role announces it any more; the connection last.
    """

    def __init__(
        self, agents: Sequence[Agent], settings: Settings | None = None, *, name: str | None = None, clock: Clock | None = None
    ) -> None:
        self.settings = settings or Settings.from_env(os.environ)
        self.name = name or process_name()
        self.running: dict[str, Attempt] = {}
        self._agents = list(agents)
        self._clock = clock or Clock()
        self._broker = WorkerBroker(self.settings, self.name)
        self._client = Client(settings=self.settings, broker=self._broker)
        self._settler = Settler(self._broker)
        self._slots = Slots(self.settings.concurrency)
        self.strays = Strays(self._slots)
        self._services = Services(self.settings, self._broker, self._client, self._settler, self._clock, self.strays)
        self._renewer = Renewer(self._broker, self.running, self._clock)
        self._claimers = {
            agent.name: Claimer(self._broker, agent, self._slots, self._clock, self._start) for agent in self._agents
        }
        self._plain = [PlainFunctions(agent, self.settings) for agent in self._agents if agent.functions or agent.cron_jobs]
        self._announcer: Announcer | None = None
        self._roles: list[asyncio.Task[None]] = []
        self._claiming: list[asyncio.Task[None]] = []
        self._attempts: set[asyncio.Task[None]] = set()
        self._idle = asyncio.Event()

    def __repr__(self) -> str:
        names = [agent.name for agent in self._agents]
        return f"<Worker {self.name} agents={names} running={len(self.running)} {self.strays!r} {self._slots!r}>"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop(grace_s=0)

    async def start(self) -> None:
        """Starts all roles; raises BrokerUnavailable or ShardsMismatch."""
        await self._broker.open()
        announcer = Announcer(self._broker, self._agents)
        await announcer.announce()
        self._announcer = announcer
        listener = Listener(self._broker, self.running)
        watchdog = Watchdog(self._agents, self.settings.lease_s, self._clock)
        roles = (self._settler.run(), self._renewer.run(), listener.run(), announcer.run(), watchdog.run())
        self._roles = [self._role(role) for role in roles]
        self._roles += [self._role(plain.run()) for plain in self._plain]
        self._claiming = [self._role(claimer.run()) for claimer in self._claimers.values()]

    async def stop(self, *, grace_s: float | None = None) -> None:
        """Stops claiming, lets running attempts end within `grace_s` seconds, hands the rest back; twice is safe."""
        await break_off(*self._claiming)
        if self._attempts:
            await asyncio.wait(self._attempts, timeout=self.settings.grace_s if grace_s is None else grace_s)
        await self.hand_back()
        await asyncio.wait([asyncio.ensure_future(self._settler.flush())], timeout=_HAND_BACK_S)
        await break_off(*self._roles)
        if self._announcer is not None:
            await self._announcer.leave()
            self._announcer = None
        await self._client.close()
        await self._broker.close()

    async def hand_back(self) -> None:
        """Hands all running attempts back at once; one whose skill does not let go, after `cancel_grace_s`.

        One that the broker gives no answer is cut off some seconds later.
        """
        for attempt in list(self.running.values()):
            attempt.stop(StopCause.DRAIN)
        if self._attempts:
            _, stuck = await asyncio.wait(self._attempts, timeout=self.settings.cancel_grace_s + _HAND_BACK_S)
            for task in stuck:
                log.error("the attempt at task %s cannot be handed back; its lease lapses", task.get_name())
            await break_off(*stuck)

    async def until_idle(self) -> None:
        """Waits until nothing is due and nothing runs: the end of a burst."""
        while self.running or not all(claimer.is_idle for claimer in self._claimers.values()):
            self._idle.clear()
            try:
                async with asyncio.timeout(0.05):
                    await self._idle.wait()
            except TimeoutError:
                continue

    def _start(self, agent: Agent, claimed: ClaimedJob) -> None:
        attempt = Attempt(self._services, agent, claimed, self._slots.give_back)
        self.running[claimed.task_id] = attempt
        task = asyncio.get_running_loop().create_task(self._run(attempt), name=claimed.task_id)
        self._attempts.add(task)
        task.add_done_callback(self._attempts.discard)

    async def _run(self, attempt: Attempt) -> None:
        try:
            if await attempt.run() is Outcome.ELSEWHERE:
                self._claimers[attempt.lease.agent].avoid(attempt.lease.task_id)
        except Exception:
            log.exception("attempt at task %s broke", attempt.lease.task_id)
        finally:
            if self.running.get(attempt.lease.task_id) is attempt:
                del self.running[attempt.lease.task_id]
            self._idle.set()

    def _role(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(_report)
        return task


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.critical("a role of the worker ended", exc_info=task.exception())
