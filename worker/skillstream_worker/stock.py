"""Skills under a stock arq worker: slower, and with arq's own claims (rule P16)."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, cast

import arq
from arq.typing import WorkerCoroutine
from arq.worker import func

from skillstream import Client
from skillstream.breaking_off import break_off
from skillstream.broker import Settlement
from skillstream.clock import Clock
from skillstream_schemas import job as arq_job
from skillstream_schemas import keys as arq_keys
from skillstream_schemas.errors import ResultTimeout, UnknownTask
from skillstream_schemas.settings import Settings

from .agent import Agent
from .arq_connection import arq_redis_settings
from .attempt import Attempt
from .broker import ClaimedJob, WorkerBroker
from .listener import Listener
from .outcome import Outcome, StopCause
from .services import Services
from .slots import Slots
from .strays import Strays

_DAY_S = 86_400.0
_TIMEOUT_MARGIN_S = 60.0
_CLAIMS_MARGIN = 30
"""Above the bound of rule P11, so that a task ends by it and never by arq's own count."""


def arq_settings(agent: Agent, settings: Settings) -> dict[str, Any]:
    """Arguments for `arq.Worker(**arq_settings(agent, settings))`: a stock arq worker that runs an agent's skills.

    One server or Sentinel only; one queue has one kind of worker. A killed stock worker's task comes back when
    arq's in-progress key ends: a minute after the longest timeout of the skills, a day where one has none.
    """
    runner = StockRunner(agent, settings)
    timeouts = [_DAY_S if skill.timeout_s is None else skill.timeout_s for skill in agent.skills.values()]
    tries = max((skill.max_attempts for skill in agent.skills.values()), default=1) + _CLAIMS_MARGIN
    timeout_s = max(timeouts, default=_DAY_S) + _TIMEOUT_MARGIN_S
    return {
        "functions": [func(cast(WorkerCoroutine, runner.run_skill), name=arq_keys.RUN_SKILL, timeout=timeout_s, max_tries=tries)],
        "queue_name": agent.queue,
        "redis_settings": arq_redis_settings(settings),
        "job_serializer": arq_job.pack,
        "job_deserializer": arq_job.unpack,
        "max_jobs": settings.concurrency,
        "on_startup": runner.start,
        "on_shutdown": runner.stop,
    }


class LeftToArq:
    """Settles nothing: arq's own finish takes the job off the queue."""

    def settle(self, agent: str, settlement: Settlement) -> None:
        """Leaves it to arq."""


def _leave_it_to_arq() -> None:
    """arq counts its own jobs."""


class StockRunner:
    """Responsible for attempts inside a stock arq worker: their claim is the server's time, their lease arq's."""

    def __init__(self, agent: Agent, settings: Settings) -> None:
        self._agent, self._settings = agent, settings
        self._running: dict[str, Attempt] = {}
        self._broker = WorkerBroker(settings, f"arq-{id(self):x}")
        self._client = Client(settings=settings, broker=self._broker)
        self._services = Services(settings, self._broker, self._client, LeftToArq(), Clock(), Strays(Slots(settings.concurrency)))
        self._listening: asyncio.Task[None] | None = None

    async def start(self, context: dict[Any, Any]) -> None:
        """arq's on_startup: connects and announces the agent."""
        await self._broker.open()
        await self._broker.announce(self._agent.card, forget_ms=int(_DAY_S * 1000))
        self._listening = asyncio.create_task(Listener(self._broker, self._running).run())

    async def stop(self, context: dict[Any, Any]) -> None:
        """arq's on_shutdown: closes the connections."""
        if self._listening is not None:
            await break_off(self._listening)
        await self._client.close()
        await self._broker.close()

    async def run_skill(self, context: dict[Any, Any], request: dict[str, Any] | None = None) -> dict[str, str] | None:
        """The arq function: runs one attempt and returns the fields of the final.

        It never returns while the task is open elsewhere: arq would delete the other attempt's job.
        """
        task_id = arq_keys.task_of_job(self._agent.name, context["job_id"])
        if task_id is None:
            raise ValueError(f"malformed_job: {context['job_id'][:200]!r} is no job id of agent {self._agent.name}")
        payload = None if request is None else arq_job.pack({"f": arq_keys.RUN_SKILL, "a": [request], "k": {}, "et": 0})
        claimed = ClaimedJob(task_id, await self._broker.server_claim(), int(context["job_try"]), payload)
        attempt = Attempt(self._services, self._agent, claimed, _leave_it_to_arq)
        outcome = await self._run(attempt)
        match outcome:
            case Outcome.FINISHED | Outcome.CLOSED | Outcome.ALREADY_FINAL:
                return attempt.final
            case Outcome.HANDED_BACK | Outcome.ELSEWHERE:
                raise arq.Retry(defer=attempt.hand_back_delay_s)
            case Outcome.GONE:
                raise arq.Retry(defer=self._settings.lease_s)
            case _:
                return await self._others_final(task_id)

    async def _run(self, attempt: Attempt) -> Outcome:
        task_id = attempt.lease.task_id
        self._running[task_id] = attempt
        running = asyncio.create_task(attempt.run())
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            # arq shuts down: the attempt is handed back before arq puts the job back
            attempt.stop(StopCause.DRAIN)
            with contextlib.suppress(Exception):
                await running
            raise
        finally:
            del self._running[task_id]

    async def _others_final(self, task_id: str) -> dict[str, str]:
        """Waits for the final of the attempt that fenced this one; asks for another try where nobody writes on."""
        seen = None
        while True:
            try:
                final = await self._client.task(task_id).result(2 * self._settings.lease_s)
                return final.to_fields()
            except (ResultTimeout, UnknownTask):
                ends = await self._broker.ends(task_id)
                top = None if ends is None else ends[1][0]
                if top is None or top == seen:
                    raise arq.Retry from None
                seen = top
