"""Where calls of the hub become executions that are kept; nothing is lost or run twice from here on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from skillstream.clock import Clock
from skillstream_router.connect.broker import ConnectBroker
from skillstream_router.connect.deliveries import Deliveries
from skillstream_router.json_rpc import INTERNAL_ERROR, INVALID_PARAMS, SERVER_ERROR, Frame, error_frame, result_frame
from skillstream_schemas.connect_errors import HubUnavailable
from skillstream_schemas.errors import BrokerRefused, BrokerUnavailable, InvalidRequest, SkillstreamError
from skillstream_schemas.state import TaskState

from .execution import Execution, conversation_of, delivery_of, digest_of, task_id_of
from .frames import Call, TaskExecute
from .link import HubLink

log = logging.getLogger(__name__)
_WAITING = 1000


class Desk:
    """Responsible for `task.execute`: each call is answered once it is kept, in the order in which they came.

    A call repeated is answered with where its task stands and starts nothing. A call for the same hub task behind an
    acknowledged `input-required` is the next turn. `skill` is run where the call's metadata names none (`skill_id`).
    """

    def __init__(
        self,
        broker: ConnectBroker,
        deliveries: Deliveries[Execution],
        skill: str,
        clock: Clock,
        begin: Callable[[Execution], None],
    ) -> None:
        self._broker, self._deliveries, self._skill, self._clock, self._begin = broker, deliveries, skill, clock, begin
        self._calls: asyncio.Queue[Call] = asyncio.Queue(_WAITING)
        self._open: dict[str, Execution] = {}
        self._ended = asyncio.Event()
        self.link: HubLink | None = None

    def __repr__(self) -> str:
        return f"<Desk waiting={self._calls.qsize()} open={len(self._open)}>"

    def put(self, call: Call) -> Frame | None:
        """Takes a call without waiting; returns the error to answer with where too many wait."""
        try:
            self._calls.put_nowait(call)
        except asyncio.QueueFull:
            too_many = f"{_WAITING} calls wait"
            return None if call.id is None else error_frame(call.id, SERVER_ERROR, too_many, {"code": HubUnavailable.code})
        return None

    async def run(self) -> None:
        """Begins what was owed at the start, then takes calls, until cancelled."""
        await self._begin_owed()
        while True:
            call = await self._calls.get()
            reply = await self._answered(call)
            if reply is not None and call.id is not None:
                await self._reply(reply)

    def changed(self, execution: Execution) -> None:
        """Hears how far an execution is."""
        self._open[execution.delivery] = execution

    def ended(self, execution: Execution) -> None:
        """Forgets an execution whose completion is acknowledged and written down."""
        self._open.pop(execution.delivery, None)
        self._ended.set()

    async def _begin_owed(self) -> None:
        for execution in sorted((await self._deliveries.owed()).values(), key=lambda each: each.received_at):
            done = await self._deliveries.ended(execution.delivery)
            if done is not None and done.turn >= execution.turn:  # the connector died between the two writes of an end
                await self._deliveries.end(execution.delivery, done)
                continue
            self._open[execution.delivery] = execution
            self._begin(execution)

    async def _answered(self, call: Call) -> Frame | None:
        rpc_id = call.id if call.id is not None else ""
        try:
            execute = TaskExecute.read(call.params)
            state = await self._take(execute, call)
        except InvalidRequest as error:
            return error_frame(rpc_id, INVALID_PARAMS, error.message, {"code": error.code})
        except SkillstreamError as error:
            log.warning("task.execute is not taken: %s", error)
            return error_frame(rpc_id, INTERNAL_ERROR, error.message, {"code": error.code})
        return result_frame(rpc_id, {"task_id": execute.id, "status": {"state": state.value}})

    async def _take(self, execute: TaskExecute, call: Call) -> TaskState:
        delivery, digest = delivery_of(execute.id), digest_of(execute)
        while (known := self._open.get(delivery)) is not None and known.state is not None:
            self._ended.clear()  # the hub was quicker than the broker: its next turn waits for the end of the one before
            await self._ended.wait()
        if known is not None:
            _check_same(known, digest)
            return TaskState.WORKING if known.submitted else TaskState.SUBMITTED
        link, conversation = self._deliveries.link, conversation_of(self._deliveries.link, execute)
        # both in one round trip
        before, follows = await asyncio.gather(self._deliveries.ended(delivery), self._broker.last_turn(link, conversation))
        if before is not None and not _is_next_turn(before, call, digest):
            _check_same(before, digest)
            return before.state or TaskState.SUBMITTED
        execution = self._execution(execute, call, 1 if before is None else before.turn + 1, follows)
        await self._deliveries.keep(delivery, execution)
        self._open[delivery] = execution
        self._begin(execution)
        try:
            await self._broker.set_last_turn(link, conversation, execution.task_id)
        except (BrokerUnavailable, BrokerRefused) as error:  # it is taken all the same
            log.warning("the next turn of %s may not know this one: %s", conversation, error)
        return TaskState.SUBMITTED

    def _execution(self, execute: TaskExecute, call: Call, turn: int, follows: str | None) -> Execution:
        link = self._deliveries.link
        digest = digest_of(execute)
        metadata = execute.metadata or {}
        named = metadata.get("skill_id")
        skill = named if isinstance(named, str) else self._skill
        return Execution(
            hub_task=execute.id, turn=turn, call_id=call.id, digest=digest, skill=skill,
            message=execute.message.text, data=execute.message.data, metadata=metadata, session=execute.session_id,
            context_id=conversation_of(link, execute), task_id=task_id_of(link, execute.id, turn, digest),
            follows=follows, received_at=self._clock.now_ms(),
        )  # fmt: skip

    async def _reply(self, reply: Frame) -> None:
        assert self.link is not None
        try:
            if self.link.up.is_set():  # a call whose connection is gone is called again by the hub
                await self.link.send(reply)
        except HubUnavailable:
            log.info("the answer to task.execute found no connection")


def _check_same(known: Execution, digest: str) -> None:
    if known.digest != digest:
        raise InvalidRequest(f"task {known.hub_task[:100]!r} asks for something else already")


def _is_next_turn(before: Execution, call: Call, digest: str) -> bool:
    if before.state is not TaskState.INPUT_REQUIRED:
        return False
    return digest != before.digest if call.id is None else call.id != before.call_id
