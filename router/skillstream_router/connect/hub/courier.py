"""One execution on its way: submitted here, its events told to the hub, its completion said until it is acknowledged."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing

from skillstream import Client
from skillstream.clock import Clock
from skillstream.task import Task
from skillstream_router.connect.backoff import Backoff
from skillstream_router.connect.deliveries import Deliveries
from skillstream_router.connect.following import events_to_the_end, refused, submit_once
from skillstream_router.connect.persistence import persist
from skillstream_schemas.connect_errors import HubUnavailable
from skillstream_schemas.errors import SkillstreamError
from skillstream_schemas.event import FinalEvent, FollowedEvent, ResetEvent
from skillstream_schemas.ids import START, EventId

from .execution import Execution
from .frames import Answer, complete_frame, status_frame
from .link import HubLink, HubPace

log = logging.getLogger(__name__)


class Courier:
    """Responsible for one execution until the hub has acknowledged its end.

    After a break, status frames go on behind the last acknowledged one, each under the JSON-RPC id that it had before; at a
    hub that is seen to acknowledge none (it answered a completion and not the status frames before), behind the last one sent.
    `payer` is charged for the task.
    """

    def __init__(
        self,
        execution: Execution,
        client: Client,
        link: HubLink,
        deliveries: Deliveries[Execution],
        clock: Clock,
        pace: HubPace,
        payer: str | None,
        on_changed: Callable[[Execution], None],
        on_ended: Callable[[Execution], None],
    ) -> None:
        self._execution = execution
        self._client, self._link, self._deliveries, self._clock, self._pace = client, link, deliveries, clock, pace
        self._payer, self._on_changed, self._on_ended = payer, on_changed, on_ended
        self._sent = execution.cursor
        self._unanswered: dict[str, EventId] = {}
        self._told_in: int | None = None  # the registration in which all status frames were sent

    def __repr__(self) -> str:
        return f"<Courier {self._execution.hub_task} of {self._execution.task_id} at {self._execution.cursor}>"

    async def run(self) -> None:
        """Delivers everything; returns when the end is acknowledged, or refused for good."""
        try:
            final = self._execution.final or await self._submitted_and_told()
            await self._complete(final)
        finally:
            self._forget_unanswered()

    async def _submitted_and_told(self) -> FinalEvent:
        try:
            task = await self._submit()
        except SkillstreamError as error:
            final = refused(self._clock, error)
        else:
            final = await self._tell(task)
        return final

    async def _submit(self) -> Task:
        """The task of this execution: submitted, unless that is known to have been done."""
        execution = self._execution
        if execution.submitted:
            return self._client.task(execution.task_id)
        task = await submit_once(
            self._client, self._link.agent, execution.skill, execution.message, task_id=execution.task_id,
            context_id=execution.context_id, follows=execution.follows, payer=self._payer,
            data=execution.data or None, metadata=execution.metadata or None,
        )  # fmt: skip
        # what was asked stands on the task's stream now
        self._change(submitted=True, message="", data=[], metadata={})
        return task

    async def _tell(self, task: Task) -> FinalEvent:
        """Sends status frames until the final; goes back to what the hub has where the connection breaks."""
        while True:
            await self._link.up.wait()
            generation = self._link.generation
            start = self._sent if self._link.acknowledges_status is False else self._execution.cursor
            try:
                async with aclosing(events_to_the_end(task, start, self._clock)) as events:
                    async for event in events:
                        if isinstance(event, FinalEvent):
                            self._told_in = generation
                            return event
                        if self._link.generation != generation or not self._link.up.is_set():
                            raise HubUnavailable("the connection broke")
                        await self._say(event)
            except HubUnavailable:
                continue

    async def _say(self, event: FollowedEvent) -> None:
        if isinstance(event, ResetEvent):
            place, rpc_id = None, f"{self._execution.task_id}:{event.attempt}-1"
        else:
            place, rpc_id = event.id, f"{self._execution.task_id}:{event.id}"
        frame = status_frame(self._execution.hub_task, event, rpc_id)
        if frame is not None:
            if place is not None:
                self._unanswered[rpc_id] = place
                self._link.expect(rpc_id, self._acknowledged)
            await self._link.send(frame)
        if place is not None:
            self._sent = place
            if self._link.acknowledges_status is False:
                self._change(cursor=place)

    def _acknowledged(self, answer: Answer) -> None:
        """The hub has a status frame; all before it went over the same connection."""
        place = self._unanswered.get(str(answer.id), START)
        self._link.acknowledges_status = True
        for rpc_id, earlier in list(self._unanswered.items()):
            if earlier <= place:
                del self._unanswered[rpc_id]
                self._link.forget(rpc_id)
        if place > self._execution.cursor:
            self._change(cursor=place)

    async def _complete(self, final: FinalEvent) -> None:
        """Says the end, again after each break and each silence, until the hub has answered."""
        rpc_id = self._execution.completion_id
        frame = complete_frame(self._execution.hub_task, final, rpc_id)
        backoff = Backoff(self._pace.again_s, self._pace.longest_again_s)
        answered: asyncio.Queue[Answer] = asyncio.Queue()
        self._link.expect(rpc_id, answered.put_nowait)
        try:
            while True:
                if not self._link.up.is_set():
                    self._keep(final)
                try:
                    await self._tell_again()
                    await self._link.send(frame)
                    answer = await self._answer(answered, backoff.next_s())
                except HubUnavailable:
                    continue
                if answer is not None and not answer.may_pass:
                    break
                self._keep(final)
                if answer is not None:
                    log.warning("the hub takes the end of %s later: %s", self._execution.hub_task, answer.error)
                    await asyncio.sleep(backoff.next_s())
        finally:
            self._link.forget(rpc_id)
        if self._unanswered and self._link.acknowledges_status is None:
            self._link.acknowledges_status = False
        if answer.error is not None:
            log.error("hub_refused: the end of %s is not taken: %s", self._execution.hub_task, str(answer.error)[:300])
        await self._end(final)

    async def _tell_again(self) -> None:
        """Sends the status frames that were on a connection when it broke, where the end is due already."""
        await self._link.up.wait()
        missing = self._execution.submitted and self._link.acknowledges_status is not False
        if missing and self._told_in != self._link.generation and (self._unanswered or self._told_in is None):
            await self._tell(self._client.task(self._execution.task_id))

    def _keep(self, final: FinalEvent) -> None:
        """Keeps the final for later: its stream goes a day after the end."""
        if self._execution.final is None:
            self._change(final=final)

    async def _answer(self, answered: asyncio.Queue[Answer], timeout_s: float) -> Answer | None:
        """The hub's answer; None where it is silent, or its connection breaks: then the frame is sent again."""
        generation = self._link.generation
        broken = asyncio.ensure_future(self._link.until_after(generation))
        asked = asyncio.ensure_future(answered.get())
        try:
            await asyncio.wait((broken, asked), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            return asked.result() if asked.done() else None
        finally:
            broken.cancel()
            asked.cancel()

    async def _end(self, final: FinalEvent) -> None:
        self._forget_unanswered()  # a status frame answered from here on would be noted behind the end
        ended = self._execution = self._execution.ended(final.state)
        self._on_changed(ended)
        await persist(f"the end of {ended.hub_task}", lambda: self._deliveries.end(ended.delivery, ended))
        self._on_ended(ended)

    def _forget_unanswered(self) -> None:
        for rpc_id in self._unanswered:
            self._link.forget(rpc_id)

    def _change(self, **changes: object) -> Execution:
        self._execution = self._execution.model_copy(update=changes)
        self._on_changed(self._execution)
        self._deliveries.note(self._execution.delivery, self._execution)
        return self._execution
