"""What is usually built by hand: FastAPI, arq, and one PUBLISH a token; `api PORT` answers HTTP, `worker` runs the jobs.

It keeps nothing: no state, no history, no resumption. The endpoint subscribes before it enqueues, so that no token is missed.
"""

from __future__ import annotations

import asyncio
import os
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import redis.asyncio
import uvicorn
from arq import create_pool, run_worker
from arq.connections import RedisSettings
from fastapi import FastAPI
from starlette.responses import StreamingResponse

from benchmarks.agents import TOKEN

END = "[DONE]"
BROKER = RedisSettings(port=int(os.environ.get("BENCH_REDIS_PORT", "6379")))


async def talk(ctx: dict[str, Any], task_id: str, tokens: int) -> None:
    """The job: says its tokens on the task's channel."""
    for _ in range(tokens):
        await asyncio.sleep(0)
        await ctx["redis"].publish(task_id, TOKEN)
    await ctx["redis"].publish(task_id, END)


class WorkerSettings:
    """arq's settings; it polls each 10 ms, a fiftieth of its default."""

    functions: ClassVar = [talk]
    redis_settings = BROKER
    max_jobs = 100
    poll_delay = 0.01


def make_api() -> FastAPI:
    """One endpoint: queue a job and stream what it says."""

    @asynccontextmanager
    async def connected(app: FastAPI) -> AsyncIterator[None]:
        app.state.queue = await create_pool(BROKER)
        app.state.redis = redis.asyncio.Redis(port=BROKER.port, decode_responses=True)
        yield

    app = FastAPI(lifespan=connected)

    @app.post("/stream")
    async def stream(tokens: int) -> StreamingResponse:
        channel = app.state.redis.pubsub()
        task_id = uuid.uuid4().hex
        await channel.subscribe(task_id)
        await app.state.queue.enqueue_job("talk", task_id, tokens)

        async def relayed() -> AsyncIterator[str]:
            try:
                async for message in channel.listen():
                    if message["type"] == "message":
                        yield f"data: {message['data']}\n\n"
                        if message["data"] == END:
                            return
            finally:
                await channel.aclose()

        return StreamingResponse(relayed(), media_type="text/event-stream")

    return app


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        run_worker(WorkerSettings)  # type: ignore[arg-type]
    else:
        uvicorn.run(make_api(), host="127.0.0.1", port=int(sys.argv[2]), log_level="warning")
