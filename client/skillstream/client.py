"""What other services import: submit tasks, find them again, talk in a context."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Self

from skillstream_schemas.card import AgentCard, SkillCard
from skillstream_schemas.errors import InvalidRequest, TaskIdTaken, UnknownAgent, UnknownSkill
from skillstream_schemas.ids import check_name, new_task_id
from skillstream_schemas.limits import MAX_DELAY_S
from skillstream_schemas.request import HistoryMessage, TaskRequest
from skillstream_schemas.settings import Settings

from .broker import Broker
from .cluster_follow import following_of
from .task import Task

_CARDS_FRESH_S = 5.0


class Client:
    """Responsible for submitting tasks; one connection sends, one follows, whatever the number of tasks.

    `url` and `settings` say where the broker is, without settings the environment's `SKILLSTREAM_…`; the URL wins. Used as
    an async context manager, or `open` and `close`.
    """

    def __init__(self, url: str | None = None, *, settings: Settings | None = None, broker: Broker | None = None) -> None:
        base = settings or Settings.from_env(os.environ)
        self.settings = base if url is None else base.changed(redis_url=url)
        self._broker = broker or Broker(self.settings)
        self._owns_broker = broker is None
        self._durable: Broker | None = None
        self._hub = following_of(self._broker.pipeline, self.settings)
        self._cards: dict[str, AgentCard] = {}
        self._cards_at_s = -_CARDS_FRESH_S

    async def open(self) -> Self:
        """Connects; raises BrokerUnavailable where nobody listens, ShardsMismatch for another broker's settings."""
        if self._owns_broker:
            await self._broker.open()
        return self

    async def close(self) -> None:
        """Closes the connections; twice is safe."""
        await self._hub.close()
        if self._durable is not None:
            await self._durable.close()
        if self._owns_broker:
            await self._broker.close()

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
        request = await self.check(
            agent, skill, message, context_id=context_id, payer=payer, deadline=deadline, metadata=metadata, data=data,
            history=history, follows=follows, sender_id=sender_id, parent=parent, traceparent=traceparent,
        )  # fmt: skip
        task = Task(self._broker, self._hub, new_task_id() if task_id is None else task_id)
        delay_ms = _delay_ms(delay)
        broker = await self._durable_broker() if durable else self._broker
        submitted = await broker.submit(task.id, request, delay_ms=delay_ms)
        if not submitted.is_new and not submitted.request.same_order(request):
            differing = ", ".join(submitted.request.differing(request))
            raise TaskIdTaken(f"task {task.id} was submitted before with another request: other {differing}")
        if not submitted.ended:
            await broker.enqueue(agent, task.id, delay_ms=delay_ms)
        if durable:
            await broker.confirm_replicated(agent, task.id)
        return task

    async def check(
        self,
        agent: str,
        skill: str,
        message: str,
        *,
        deadline: datetime | timedelta | None = None,
        metadata: Mapping[str, Any] | None = None,
        history: Sequence[HistoryMessage] | None = None,
        **others: Any,
    ) -> TaskRequest:
        """The request that `submit` would queue with these options, for who must know first that it can be.

        Raises UnknownAgent, UnknownSkill, InvalidRequest (MessageTooLarge, InvalidName), BrokerUnavailable.
        """
        card = self._fresh_card(agent, skill) or await self._skill_card(agent, skill)
        wanted = {
            "agent": agent, "skill": skill, "message": message, "max_attempts": card.max_attempts,
            "price_micros": card.price_micros, "on_retry": card.on_retry, "deadline": _unix_ms(deadline),
            "metadata": dict(metadata) if metadata else None,
            "history": tuple(history) if history is not None else None, **others,
        }  # fmt: skip
        return TaskRequest.build(wanted, self.settings.limits)

    def task(self, task_id: str) -> Task:
        """The handle of a task submitted before, by anyone; raises InvalidName. Nothing is read yet."""
        return Task(self._broker, self._hub, task_id)

    def conversation(self, agent: str, *, context_id: str | None = None, payer: str | None = None) -> Conversation:
        """A conversation with an agent: tasks that share a context, each knowing the turn before."""
        return Conversation(self, agent, context_id or new_task_id(), payer)

    async def agents(self) -> dict[str, AgentCard]:
        """Cards of all agents that ever announced themselves, by name."""
        return await self._broker.cards()

    async def queue_depths(self, agent: str) -> tuple[int, int]:
        """How many jobs of an agent may be claimed now, and how many are leased or delayed."""
        return await self._broker.queue_depths(agent)

    def _fresh_card(self, agent: str, skill: str) -> SkillCard | None:
        card = self._cards.get(agent)
        if card is None or time.monotonic() - self._cards_at_s >= _CARDS_FRESH_S:
            return None
        return card.skill(skill)

    async def _skill_card(self, agent: str, skill: str) -> SkillCard:
        check_name(agent, "the agent name")
        self._cards = await self._broker.cards()
        self._cards_at_s = time.monotonic()
        card = self._cards.get(agent)
        if card is None:
            known = ", ".join(sorted(self._cards)) or "none"
            raise UnknownAgent(f"agent {agent!r} is not known on this broker; known agents: {known}")
        found = card.skill(skill)
        if found is None:
            known = ", ".join(sorted(s.name for s in card.skills)) or "none"
            raise UnknownSkill(f"agent {agent!r} has no skill {skill[:100]!r}; its skills: {known}")
        return found

    async def _durable_broker(self) -> Broker:
        # WAIT holds up its connection until a replica answers, so it has one of its own
        if self._durable is None:
            self._durable = await Broker(self.settings).open()
        return self._durable


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


def _unix_ms(deadline: datetime | timedelta | None) -> int | None:
    if deadline is None:
        return None
    if isinstance(deadline, timedelta):
        return int((time.time() + deadline.total_seconds()) * 1000)
    if deadline.tzinfo is None:
        raise InvalidRequest("deadline has no time zone")
    return int(deadline.timestamp() * 1000)


def _delay_ms(delay: float | timedelta | None) -> int:
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay or 0.0
    if not 0 <= seconds <= MAX_DELAY_S:
        raise InvalidRequest(f"a delay of {seconds} s is not between 0 and a year")
    return int(seconds * 1000)
