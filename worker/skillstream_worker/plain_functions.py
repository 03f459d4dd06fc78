"""Role: plain arq functions and cron jobs beside an agent's skills, run by an unmodified arq worker."""

from __future__ import annotations

import asyncio

import arq

from skillstream_schemas import job, keys
from skillstream_schemas.settings import Settings

from .agent import Agent
from .arq_connection import arq_redis_settings

_ROUND_S = 0.5


class PlainFunctions:
    """Responsible for one arq worker on `arq:queue:{<agent>}:plain`; jobs and results are msgpack."""

    def __init__(self, agent: Agent, settings: Settings) -> None:
        self._agent, self._redis = agent, arq_redis_settings(settings)

    async def run(self) -> None:
        """Runs arq's worker until it is cancelled; its running jobs are then put back by arq itself."""
        worker = arq.Worker(
            functions=self._agent.functions,
            cron_jobs=self._agent.cron_jobs or None,
            queue_name=keys.plain_queue(self._agent.name),
            redis_settings=self._redis,
            job_serializer=job.pack,
            job_deserializer=job.unpack,
            handle_signals=False,
        )
        running = asyncio.create_task(worker.async_run())
        try:
            await asyncio.shield(running)
        finally:
            # cut off while it takes a job, arq would leave that job's lease behind: first it stops taking any
            worker.burst, worker.max_burst_jobs = True, 0
            await asyncio.wait([running], timeout=worker.poll_delay_s + _ROUND_S)
            await worker.close()
            await asyncio.gather(running, return_exceptions=True)
