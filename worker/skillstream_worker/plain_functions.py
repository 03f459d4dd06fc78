"""Role: plain arq functions and cron jobs beside an agent's skills, run by an unmodified arq worker."""

from __future__ import annotations

import arq
from arq.connections import RedisSettings

from skillstream_schemas import job, keys
from skillstream_schemas.settings import Settings

from .agent import Agent


class PlainFunctions:
    """Responsible for one arq worker on `arq:queue:{<agent>}:plain`; jobs and results are msgpack."""

    def __init__(self, agent: Agent, settings: Settings) -> None:
        self._agent, self._settings = agent, settings

    async def run(self) -> None:
        """Runs arq's worker until it is cancelled; its running jobs are then put back by arq itself."""
        worker = arq.Worker(
            functions=self._agent.functions,
            cron_jobs=self._agent.cron_jobs or None,
            queue_name=keys.plain_queue(self._agent.name),
            redis_settings=RedisSettings.from_dsn(self._settings.redis_url),
            job_serializer=job.pack,
            job_deserializer=job.unpack,
            handle_signals=False,
        )
        try:
            await worker.async_run()
        finally:
            await worker.close()
