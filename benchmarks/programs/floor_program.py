"""Not a peer but a ceiling: the smallest worker over Redis streams that keeps a state and an event stream a task.

Submission, start and end are one script each over many tasks, and the end takes the task off the queue. There are no
retries, timeouts, delays, leases, cancellation, fences or request checks: it says what batching leaves, not what a
product reaches.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgpack
import redis.asyncio
import uvloop

from .program import Send, main
from .recording import CONCURRENCY, URL, record, wait_for_the_others

QUEUE, GROUP = "floor:queue", "workers"
_AT_ONCE = 500

SUBMIT = """
for i = 1, #ARGV, 2 do
  local id = ARGV[i]
  redis.call('HSET', 'floor:task:' .. id, 'state', 'submitted', 'seq', 1)
  redis.call('XADD', 'floor:events:' .. id, '*', 'seq', 1, 'type', 'submitted')
  redis.call('XADD', KEYS[1], '*', 'id', id, 'payload', ARGV[i + 1])
end
"""
START = """
local won = {}
for i = 1, #ARGV do
  local key = 'floor:task:' .. ARGV[i]
  if redis.call('HGET', key, 'state') == 'submitted' then
    local seq = redis.call('HINCRBY', key, 'seq', 1)
    redis.call('HSET', key, 'state', 'working')
    redis.call('XADD', 'floor:events:' .. ARGV[i], '*', 'seq', seq, 'type', 'working')
    won[i] = 1
  else
    won[i] = 0
  end
end
return won
"""
END = """
local entries = {}
for i = 1, #ARGV, 3 do
  local key, events = 'floor:task:' .. ARGV[i], 'floor:events:' .. ARGV[i]
  local seq = redis.call('HINCRBY', key, 'seq', 1)
  redis.call('HSET', key, 'state', 'completed', 'result', ARGV[i + 2])
  redis.call('XADD', events, '*', 'seq', seq, 'type', 'final')
  redis.call('EXPIRE', key, 3600)
  redis.call('EXPIRE', events, 3600)
  entries[#entries + 1] = ARGV[i + 1]
end
redis.call('XACK', KEYS[1], 'workers', unpack(entries))
redis.call('XDEL', KEYS[1], unpack(entries))
"""


class Batcher:
    """Responsible for calls that gather while one batch is under way and go out with the next."""

    def __init__(self, flush: Callable[[list[Any]], Awaitable[Any]]) -> None:
        self._flush = flush
        self._waiting: list[tuple[Any, asyncio.Future[Any]]] = []
        self._busy: asyncio.Task[None] | None = None

    def add(self, item: Any) -> asyncio.Future[Any]:
        """Has an item done with the next batch; its answer comes by the future."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, answer))
        if self._busy is None or self._busy.done():
            self._busy = asyncio.get_running_loop().create_task(self._run())
        return answer

    async def _run(self) -> None:
        await asyncio.sleep(0)
        while self._waiting:
            batch, self._waiting = self._waiting[:_AT_ONCE], self._waiting[_AT_ONCE:]
            answers = await self._flush([item for item, _ in batch])
            for place, (_, answer) in enumerate(batch):
                if not answer.done():
                    answer.set_result(answers[place] if answers else None)


class FloorWorker:
    """Responsible for running tasks: claimed by the consumer group, started and ended in batches."""

    def __init__(self) -> None:
        self._redis: Any = redis.asyncio.Redis.from_url(URL)
        self._start_script = self._redis.register_script(START)
        self._end_script = self._redis.register_script(END)
        self._starts, self._ends = Batcher(self._start), Batcher(self._end)
        self._slots = asyncio.Semaphore(CONCURRENCY)
        self._running: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Claims and runs until the process is ended."""
        try:
            await self._redis.xgroup_create(QUEUE, GROUP, id="0", mkstream=True)
        except redis.asyncio.ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise
        wait_for_the_others()
        while True:
            await self._slots.acquire()
            free = 1
            while not self._slots.locked() and free < CONCURRENCY:
                await self._slots.acquire()
                free += 1
            got = await self._redis.xreadgroup(GROUP, f"worker{os.getpid()}", {QUEUE: ">"}, count=free, block=1000)
            entries = got[0][1] if got else []
            for _ in range(free - len(entries)):
                self._slots.release()
            for entry, fields in entries:
                task = asyncio.get_running_loop().create_task(self._perform(entry, fields))
                self._running.add(task)
                task.add_done_callback(self._running.discard)

    async def _perform(self, entry: bytes, fields: dict[bytes, bytes]) -> None:
        try:
            task_id = fields[b"id"]
            if await self._starts.add(task_id):
                record(msgpack.unpackb(fields[b"payload"])[0])
                await self._ends.add((task_id, entry, msgpack.packb(None)))
        finally:
            self._slots.release()

    async def _start(self, task_ids: list[bytes]) -> Any:
        return await self._start_script(args=task_ids)

    async def _end(self, ends: list[tuple[bytes, bytes, bytes]]) -> None:
        await self._end_script(keys=[QUEUE], args=[part for end in ends for part in end])


@asynccontextmanager
async def client() -> AsyncIterator[Send]:
    """A client that coalesces concurrent calls."""
    connection: Any = redis.asyncio.Redis.from_url(URL)
    script = connection.register_script(SUBMIT)

    async def flush(items: list[tuple[str, bytes]]) -> None:
        await script(keys=[QUEUE], args=[part for item in items for part in item])

    submissions = Batcher(flush)
    yield lambda sent: submissions.add((uuid.uuid4().hex, msgpack.packb((sent,))))
    await connection.aclose()


def work() -> None:
    """Runs a worker, on the loop that skillstream's worker has."""
    uvloop.run(FloorWorker().run())


if __name__ == "__main__":
    main(work, client)
