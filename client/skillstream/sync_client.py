"""The client for code without asyncio: the same calls, run on an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterable, Iterator
from typing import Any, Self, TypeVar

from skillstream_schemas.card import AgentCard
from skillstream_schemas.errors import BrokerUnavailable
from skillstream_schemas.event import FinalEvent, FollowedEvent
from skillstream_schemas.settings import Settings

from .client import Client
from .direct_line import DirectLine
from .order import Order
from .task import Task

T = TypeVar("T")


class SyncClient:
    """Responsible for running a `Client` in a thread; arguments and errors are those of `Client`.

    A thread that submits while no other does has a line of its own to the broker: waking the other thread and being woken
    by it take longer than the broker does.
    """

    def __init__(self, url: str | None = None, *, settings: Settings | None = None) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="skillstream-client", daemon=True)
        self._thread.start()
        try:
            self._client = Client(url, settings=settings)
            self._line = DirectLine(self._client.settings)
            self._run(self._client.open())
        except BaseException:
            self._stop()
            raise

    def close(self) -> None:
        """Closes the connections and ends the thread; twice is safe."""
        if self._thread.is_alive():
            self._line.close()
            self._run(self._client.close())
            self._stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def submit(self, agent: str, skill: str, message: str, *, durable: bool = False, **options: Any) -> SyncTask:
        """Queues a task and returns its handle once the broker has it: see `Client.submit`."""
        if durable:
            return SyncTask(self, self._run(self._client.submit(agent, skill, message, durable=True, **options)))
        return self.task(self._submit(Order(agent, skill, message, **options)))

    def submit_many(self, orders: Iterable[Order], *, durable: bool = False) -> list[SyncTask]:
        """Queues many tasks at the cost of a few: see `Client.submit_many`."""
        return [SyncTask(self, task) for task in self._run(self._client.submit_many(orders, durable=durable))]

    def task(self, task_id: str) -> SyncTask:
        """The handle of a task submitted before, by anyone."""
        return SyncTask(self, self._client.task(task_id))

    def agents(self) -> dict[str, AgentCard]:
        """Cards of all agents that ever announced themselves, by name."""
        return self._run(self._client.agents())

    def _submit(self, order: Order) -> str:
        submitting, broker = self._client.submitting, self._client.broker
        submission = submitting.prepared(order)
        if submission is None:
            return self._run(submitting.submit(order))
        if isinstance(self._line.run(broker.submits, broker.call_of(submission)), int):
            return submission.task_id  # the job was queued: both steps are done
        task_id = self._run(submitting.place(order, submission))
        self._line.open()
        return task_id

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop.is_closed():
            work.close()
            raise BrokerUnavailable("the client is closed")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # KeyboardInterrupt in the caller's thread
            raise

    def _iterate(self, source: AsyncGenerator[T, None]) -> Iterator[T]:
        try:
            while True:
                try:
                    yield self._run(source.__anext__())
                except StopAsyncIteration:
                    return
        finally:
            if not self._loop.is_closed():
                self._run(source.aclose())

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class SyncTask:
    """A handle on one task, as `Task`, for code without asyncio."""

    def __init__(self, client: SyncClient, task: Task) -> None:
        self.id, self.stream = task.id, task.stream
        self._client, self._task = client, task

    def __repr__(self) -> str:
        return f"<SyncTask {self.id}>"

    def events(self, after: str = "0") -> Iterator[FollowedEvent]:
        """Yields the events behind `after`, then live ones, and ends behind the final."""
        return self._client._iterate(self._task.events(after))

    def text(self, after: str = "0") -> Iterator[str]:
        """Yields the pieces of the text as they come; raises TextReset."""
        return self._client._iterate(self._task.text(after))

    def result(self, timeout: float | None = None) -> FinalEvent:
        """Waits for the final event, for `timeout` seconds at most."""
        return self._client._run(self._task.result(timeout))

    def cancel(self, reason: str = "", *, timeout: float | None = None) -> FinalEvent:
        """Cancels the task and returns its final."""
        return self._client._run(self._task.cancel(reason, timeout=timeout))
