"""The client for code without asyncio: the same calls, run on an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import suppress
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
    by it take longer than the broker does. It may be closed while others use it: they get BrokerUnavailable. A process made
    by a fork needs a client of its own.
    """

    def __init__(self, url: str | None = None, *, settings: Settings | None = None) -> None:
        self._process_id = os.getpid()
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = self._runner.get_loop()
        self._ending = asyncio.Event()
        self._awaited: set[Future[Any]] = set()
        self._is_closing = self._is_stopped = False
        self._thread = threading.Thread(target=self._serve, name="skillstream-client", daemon=True)
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
            with suppress(BrokerUnavailable):  # another thread closes it too
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
        self._check_usable()
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
        try:
            self._check_usable()
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        except BrokerUnavailable:
            work.close()
            raise
        except RuntimeError:  # the loop is closed
            work.close()
            raise BrokerUnavailable("the client is closed") from None
        self._awaited.add(future)
        try:
            if self._is_stopped:  # after `_stop` looked for who waits
                future.cancel()
            return future.result()
        except CancelledError:
            work.close()  # the loop may have stopped before it began
            raise BrokerUnavailable("the client was closed") from None
        except BaseException:
            future.cancel()  # KeyboardInterrupt in the caller's thread
            raise
        finally:
            self._awaited.discard(future)

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

    def _check_usable(self) -> None:
        if self._is_closing:
            raise BrokerUnavailable("the client is closed")
        if os.getpid() != self._process_id:
            raise BrokerUnavailable("the client was made before a fork, by another process", hint="make one behind the fork")

    def _serve(self) -> None:
        with self._runner:  # what is under way at the end is cancelled
            self._runner.run(self._ending.wait())

    def _stop(self) -> None:
        self._is_closing = True  # nothing new behind the loop's last turn
        with suppress(RuntimeError):  # closed already
            self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join()
        self._is_stopped = True
        for future in list(self._awaited):  # what the loop was given behind its last turn
            future.cancel()


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
