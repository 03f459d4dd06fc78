"""The usual recipe for streaming from a worker: FastAPI, arq, and Redis pub/sub, one awaited PUBLISH a token.

`worker` runs arq; `api PORT` the HTTP server, which subscribes before it enqueues, so that no first token is lost.
Variants: default (arq polls each 0.5 s) and fast (each 0.01 s).
"""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import redis.asyncio
import uvicorn
from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import Worker
from fastapi import FastAPI
from fastapi.responses import StreamingResponse

from .recording import CONCURRENCY, URL, VARIANT

END = "[DONE]"


async def tell(ctx: dict[str, Any], task_id: str, count: int, delay_s: float) -> None:
    """Publishes the tokens, and then the end."""
    for number in range(count):
        await asyncio.sleep(delay_s)
        await ctx["redis"].publish(task_id, f"t{number} ")
    await ctx["redis"].publish(task_id, END)


def work() -> None:
    """Runs a worker."""
    poll_delay = {"default": 0.5, "fast": 0.01}[VARIANT]
    Worker(functions=[tell], redis_settings=RedisSettings.from_dsn(URL), max_jobs=CONCURRENCY, poll_delay=poll_delay).run()


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    app.state.queue = await create_pool(RedisSettings.from_dsn(URL))
    app.state.redis = redis.asyncio.Redis.from_url(URL, decode_responses=True)
    yield
    await app.state.queue.aclose()
    await app.state.redis.aclose()


api = FastAPI(lifespan=_lifespan)


@api.post("/tasks")
async def submit(count: int, delay_s: float) -> StreamingResponse:
    """Queues a task; the answer is its tokens."""
    task_id = uuid.uuid4().hex
    channel = await _subscribed(task_id)
    await api.state.queue.enqueue_job("tell", task_id, count, delay_s)
    return _answer(channel, task_id)


@api.get("/tasks/{task_id}")
async def follow(task_id: str) -> StreamingResponse:
    """The tokens from now on."""
    return _answer(await _subscribed(task_id), task_id)


async def _subscribed(task_id: str) -> Any:
    channel = api.state.redis.pubsub()
    await channel.subscribe(task_id)
    return channel


def _answer(channel: Any, task_id: str) -> StreamingResponse:
    return StreamingResponse(_relayed(channel), media_type="text/event-stream", headers={"x-task-id": task_id})


async def _relayed(channel: Any) -> AsyncIterator[str]:
    try:
        async for message in channel.listen():
            if message["type"] == "message":
                yield f"data: {message['data']}\n\n"
                if message["data"] == END:
                    return
    finally:
        await channel.aclose()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["worker"]:
            work()
        case ["api", port]:
            uvicorn.run(api, host="127.0.0.1", port=int(port), log_level="warning")
