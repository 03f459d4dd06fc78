"""What callers may do, whatever the protocol that they speak."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Any

from skillstream import Client, Order
from skillstream.broker import Broker
from skillstream.clock import Clock
from skillstream.task import Task
from skillstream_router.store import GatewayStore, TaskRecord
from skillstream_router.store.reports import Message
from skillstream_schemas.card import AgentCard
from skillstream_schemas.errors import InvalidRequest, ResultTimeout, SkillstreamError, TaskIdTaken, UnknownTask
from skillstream_schemas.event import FinalEvent, event_from_fields, request_from_fields
from skillstream_schemas.gateway_errors import EventsGone, Unauthorized, UnknownContext
from skillstream_schemas.ids import SUBMISSION, EventId, check_name
from skillstream_schemas.request import TaskRequest
from skillstream_schemas.settings import Settings
from skillstream_schemas.state import TaskState

from .caller import Caller
from .orders import CANCEL_S, TaskOrder

log = logging.getLogger(__name__)

_OWNED_CONTEXTS = 10_000


@dataclass(frozen=True, slots=True)
class Standing:
    """A task whose stream is on the broker: what was asked, where the stream begins and ends, its final if it has one."""

    task: Task
    request: TaskRequest
    submitted_at: int
    first: EventId
    top: EventId
    final: FinalEvent | None


class Gateway:
    """Responsible for what callers ask: tasks, contexts, agents; each sees its own alone.

    A foreign task or context is as unknown as one that is not there. Errors: BrokerUnavailable, BrokerRefused,
    DatabaseUnavailable from every method.
    """

    def __init__(self, settings: Settings, store: GatewayStore, clock: Clock) -> None:
        self.settings = settings
        self._store = store
        self._clock = clock
        # connections of its own: a request does not wait behind the router's batches, and its user may be another
        following = settings.changed(redis_url=settings.http_redis_url or settings.redis_url)
        self._broker = Broker(_hasty(following))
        # who follows has seen what came so far, and waits for a broker as long as anybody
        self._client = Client(settings=following, broker=self._broker)
        self._contexts: dict[str, str] = {}

    async def open(self) -> None:
        """Connects to the broker; raises BrokerUnavailable, ShardsMismatch."""
        await self._broker.open()

    async def close(self) -> None:
        """Closes the connections, which ends all following; twice is safe."""
        await self._client.close()
        await self._broker.close()

    async def submit(self, caller: Caller, order: TaskOrder) -> Task:
        """Queues a task of the caller's.

        The same order again under the same id is the first task, which may be over and gone from the broker.
        Raises UnknownAgent, UnknownSkill, InvalidRequest, TaskIdTaken, Unauthorized for a read token, and UnknownContext
        or UnknownTask for a context or a task before that is not the caller's.
        """
        payer = self._payer(caller, order.payer)
        if order.follows is not None:
            await self.standing(caller, order.follows)
        if order.task_id is not None and await self._was_run(order, order.task_id, payer):
            return self._task(order.task_id)
        asked = order.model_dump(exclude={"stream", "cancel_on_disconnect", "delay_s", "history", "payer", "task_id"})
        asked |= {"payer": payer, "history": order.history}
        if order.context_id is not None:
            # it becomes the payer's own only by an order that can be taken
            await self._check_id(order, await self._client.check(Order(**asked)))
            await self._enter_context(caller, order.context_id)
        try:
            return await self._client.submit(**asked, task_id=order.task_id, delay=order.delay_s)
        except TaskIdTaken:
            raise _taken(order) from None

    async def standing(self, caller: Caller, task_id: str) -> Standing:
        """Where a task of the caller's stands; raises UnknownTask, EventsGone where only the database knows it still."""
        task = self._task(task_id)
        ends = await self._broker.ends(task_id)
        if ends is None:
            await self.record(caller, task_id)
            raise EventsGone(f"the events of task {task_id} are no longer kept")
        (first, fields), (top, top_fields) = ends
        if first != SUBMISSION:
            await self.record(caller, task_id)
            raise EventsGone(f"the first events of task {task_id} are no longer kept")
        request = request_from_fields(fields)
        submitted_at = int(fields.get("at", "0"))
        if not caller.may_see(task_id, request.payer, submitted_at):
            await self.record(caller, task_id)  # the id may have been the caller's before
            raise EventsGone(f"the events of task {task_id} are no longer kept")
        final = event_from_fields(top, top_fields) if top_fields.get("type") == "final" else None
        return Standing(task, request, submitted_at, first, top, final if isinstance(final, FinalEvent) else None)

    async def describe(self, caller: Caller, task_id: str) -> dict[str, Any]:
        """A task of the caller's as the broker has it, or the database once the stream is gone; raises UnknownTask."""
        try:
            standing = await self.standing(caller, task_id)
        except EventsGone:
            return _shown_record(*await self.record(caller, task_id))
        return _shown_standing(standing)

    async def cancel(self, caller: Caller, task_id: str, reason: str, timeout_s: float = CANCEL_S) -> FinalEvent | None:
        """Cancels a task of the caller's; returns its final, None where it is not there in time: the request stands.

        Raises UnknownTask, Unauthorized for a read token, InvalidRequest.
        """
        self.check_may_write(caller)
        try:
            task = (await self.standing(caller, task_id)).task
            return await task.cancel(reason, timeout=timeout_s)
        except ResultTimeout:
            return None
        except EventsGone:
            raise UnknownTask(f"task {task_id}") from None

    async def messages(self, caller: Caller, context_id: str, after: int, limit: int) -> tuple[list[Message], bool]:
        """A page of a conversation of the caller's, and whether there may be more.

        Raises UnknownContext, and InvalidRequest where `after` is no message of it.
        """
        self.check_may_write(caller)
        check_name(context_id, "the context id")
        owner = await self._store.owner_of_context(context_id)
        if owner is None or not (caller.is_open or owner == caller.payer):
            raise UnknownContext(f"context {context_id}")
        return await self._store.messages(context_id, after, limit)

    async def agents(self, caller: Caller) -> list[AgentCard]:
        """Cards of all agents by name."""
        self.check_may_write(caller)
        cards = await self._client.agents()
        return [cards[name] for name in sorted(cards)]

    async def check_health(self) -> None:
        """Asks broker and database for something small; raises what they raise, or TimeoutError after 2 s."""
        async with asyncio.timeout(2):
            await self._broker.ends("healthz")
            await self._store.keys()

    @property
    def now_ms(self) -> int:
        """The clock's unix ms."""
        return self._clock.now_ms()

    async def abandon(self, task: Task) -> None:
        """Cancels a task whose reader left, without waiting for its end."""
        try:
            await task.cancel("the reader left", timeout=0)
        except (ResultTimeout, UnknownTask):
            pass
        except SkillstreamError as error:
            log.warning("task %s goes on though its reader left: %s", task.id, error)

    async def _was_run(self, order: TaskOrder, task_id: str, payer: str | None) -> bool:
        """True where only the database knows this order still; raises TaskIdTaken where it knows another under the id."""
        known = await self._store.submission(check_name(task_id, "the task id"))
        if known is None:
            return False
        record, message = known
        if (record.payer, record.agent, record.skill, record.context_id, message) != (
            payer, order.agent, order.skill, order.context_id, order.message
        ):  # fmt: skip
            raise _taken(order)
        return await self._broker.ends(task_id) is None

    async def _check_id(self, order: TaskOrder, request: TaskRequest) -> None:
        """Raises TaskIdTaken where another order stands under the id on the broker."""
        ends = None if order.task_id is None else await self._broker.ends(order.task_id)
        if ends is not None and ends[0][0] == SUBMISSION and not request_from_fields(ends[0][1]).same_order(request):
            raise _taken(order)

    def _task(self, task_id: str) -> Task:
        return self._client.task(task_id)

    async def record(self, caller: Caller, task_id: str) -> tuple[TaskRecord, str]:
        """A task of the caller's as the database has it, and the text with which it ended; raises UnknownTask."""
        found = await self._store.task(task_id)
        if found is None or not caller.may_see(task_id, found[0].payer, found[0].submitted_at):
            raise UnknownTask(f"task {task_id}")
        return found

    def _payer(self, caller: Caller, wanted: str | None) -> str | None:
        self.check_may_write(caller)
        if caller.is_open:
            return wanted
        if wanted not in (None, caller.payer):
            raise InvalidRequest("payer: this API key is bound to another one")
        return caller.payer

    @staticmethod
    def check_may_write(caller: Caller) -> None:
        """Raises Unauthorized for the bearer of a read token."""
        if not caller.may_write:
            raise Unauthorized("a read token only lets its task be followed")

    async def _enter_context(self, caller: Caller, context_id: str) -> None:
        check_name(context_id, "the context id")
        if caller.payer is None or self._contexts.get(context_id) == caller.payer:
            return
        if not await self._store.claim_context(context_id, caller.payer):
            raise UnknownContext(f"context {context_id}")
        if len(self._contexts) >= _OWNED_CONTEXTS:
            self._contexts.clear()
        self._contexts[context_id] = caller.payer


def _hasty(settings: Settings) -> Settings:
    """These settings, for callers who wait for their answers: nothing takes longer than `http_patience_s`."""
    longest_s = settings.http_patience_s
    names = ("patience_s", "connect_timeout_s", "answer_timeout_s")
    return settings.changed(**{name: min(getattr(settings, name), longest_s) for name in names})


def _taken(order: TaskOrder) -> TaskIdTaken:
    # the same words whoever has it: they tell a stranger no more
    return TaskIdTaken(f"task {order.task_id} was submitted before with another request")


def _shown_standing(standing: Standing) -> dict[str, Any]:
    request, final = standing.request, standing.final
    state = TaskState.SUBMITTED if standing.top.attempt == 0 else TaskState.WORKING
    shown: dict[str, Any] = {
        "id": standing.task.id, "state": state.value, "agent": request.agent, "skill": request.skill,
        "attempt": standing.top.attempt, "last_event_id": str(standing.top), "submitted_at": standing.submitted_at,
        "price_micros": request.price_micros, "context_id": request.context_id, "payer": request.payer,
    }  # fmt: skip
    if final is not None:
        shown |= {
            "state": final.state.value, "finished_at": final.at, "text": final.text, "data": final.data,
            "metadata": final.metadata, "usage": final.usage, "error": final.error, "reason": final.reason,
        }  # fmt: skip
    return {name: value for name, value in shown.items() if value is not None}


def _shown_record(record: TaskRecord, text: str) -> dict[str, Any]:
    shown = record.shown()
    for name in ("opened_at", "cancel_requested_at", "deadline"):
        del shown[name]
    if record.state.is_final:
        shown["text"] = text
    return {name: value for name, value in shown.items() if value is not None}
