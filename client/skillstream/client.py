"""What other services import: submit tasks, find them again, talk in a context."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Self

from skillstream_schemas.card import AgentCard
from skillstream_schemas.ids import check_name, new_task_id
from skillstream_schemas.request import HistoryMessage, TaskRequest
from skillstream_schemas.settings import Settings

from .broker import Broker
from .cards import Cards
from .cluster_follow import following_of
from .order import Order
from .submitting import Submitting
from .task import Task


class Client:
    """Responsible for submitting tasks; one connection sends, one follows, whatever the number of tasks.

    `url` and `settings` say where the broker is, without settings the environment's `SKILLSTREAM_…`; the URL wins. Used as
    an async context manager, or `open` and `close`.
    """

    def __init__(self, url: str | None = None, *, settings: Settings | None = None, broker: Broker | None = None) -> None:
        base = settings or Settings.from_env(os.environ)
        self.settings = base if url is None else base.changed(redis_url=url)
        self.broker = broker or Broker(self.settings)
        self._owns_broker = broker is None
        self._durably: Submitting | None = None
        self._opening = asyncio.Lock()
        self._hub = following_of(self.broker.pipeline, self.settings)
        self._cards = Cards(self.broker)
        self.submitting = Submitting(self.broker, self._cards, self.settings.limits)

    async def open(self) -> Self:
        """Connects; raises BrokerUnavailable where nobody listens, ShardsMismatch for another broker's settings."""
        if self._owns_broker:
            await self.broker.open()
        return self

    async def close(self) -> None:
        """Closes the connections; twice is safe."""
        await self._hub.close()
        if self._durably is not None:
            await self._durably.broker.close()
        if self._owns_broker:
            await self.broker.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def submit(
        self,
        agent: str,
        skill: str,
        message: str,
        *,
        context_id: str | None = None,
        payer: str | None = None,
        task_id: str | None = None,
        deadline: datetime | timedelta | None = None,
        delay: float | timedelta | None = None,
        metadata: Mapping[str, Any] | None = None,
        data: Any = None,
        history: Sequence[HistoryMessage] | None = None,
        follows: str | None = None,
        sender_id: str | None = None,
        parent: str | None = None,
        traceparent: str | None = None,
        durable: bool = False,
    ) -> Task:
        """Queues a task and returns its handle once the broker has it.

        `delay` is seconds until it may start; `deadline` the moment, or the time from now, at which it ends as failed.
        The same `task_id` with the same request again runs nothing twice and returns the first task. `durable` waits
        until a replica has it. Raises UnknownAgent, UnknownSkill, InvalidRequest (MessageTooLarge, InvalidName),
        TaskIdTaken, NotReplicated, BrokerUnavailable.
        """
        order = Order(
            agent, skill, message, context_id, payer, task_id, deadline, delay, metadata, data, history, follows,
            sender_id, parent, traceparent,
        )  # fmt: skip
        submitting = await self._submitting_durably() if durable else self.submitting
        return self.task(await submitting.submit(order))

    async def submit_many(self, orders: Iterable[Order], *, durable: bool = False) -> list[Task]:
        """Queues many tasks at the cost of a few; their handles, in the order of the orders.

        All are checked before any is sent. Raises what `submit` raises for an order that cannot be taken, with its place;
        and NotAllSubmitted, which has the tasks and the errors by place, where the broker did not take all.
        """
        submitting = await self._submitting_durably() if durable else self.submitting
        return [self.task(task_id) for task_id in await submitting.submit_many(list(orders))]

    async def check(self, order: Order) -> TaskRequest:
        """The request that `submit` would queue for this order, for who must know first that it can be.

        Raises UnknownAgent, UnknownSkill, InvalidRequest (MessageTooLarge, InvalidName), BrokerUnavailable.
        """
        return await self.submitting.check(order)

    def task(self, task_id: str) -> Task:
        """The handle of a task submitted before, by anyone; raises InvalidName. Nothing is read yet."""
        return Task(self.broker, self._hub, task_id)

    def conversation(self, agent: str, *, context_id: str | None = None, payer: str | None = None) -> Conversation:
        """A conversation with an agent: tasks that share a context, each knowing the turn before."""
        return Conversation(self, agent, context_id or new_task_id(), payer)

    async def agents(self) -> dict[str, AgentCard]:
        """Cards of all agents that ever announced themselves, by name."""
        return await self.broker.cards()

    async def queue_depths(self, agent: str) -> tuple[int, int]:
        """How many jobs of an agent may be claimed now, and how many are leased or delayed."""
        return await self.broker.queue_depths(agent)

    async def _submitting_durably(self) -> Submitting:
        # WAIT holds up its connection until a replica answers, so it has one of its own
        async with self._opening:
            if self._durably is None:
                broker = await Broker(self.settings).open()
                self._durably = Submitting(broker, self._cards, self.settings.limits, is_durable=True)
        return self._durably


class Conversation:
    """A context and the task of its last turn; `context_id` names it for later."""

    def __init__(self, client: Client, agent: str, context_id: str, payer: str | None) -> None:
        self.agent, self.context_id, self.payer = agent, check_name(context_id, "the context id"), payer
        self.last_task: Task | None = None
        self._client = client

    async def submit(self, skill: str, message: str, **options: Any) -> Task:
        """Submits the next turn, which has the turn before in its history; options and errors as `Client.submit`."""
        follows = None if self.last_task is None else self.last_task.id
        self.last_task = await self._client.submit(
            self.agent, skill, message, context_id=self.context_id, payer=self.payer, follows=follows, **options
        )
        return self.last_task
