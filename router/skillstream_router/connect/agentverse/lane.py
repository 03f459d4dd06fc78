"""One conversation: its turns are answered one after the other, so that no two streams are open in it."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import aclosing
from functools import partial

from uagents_core.contrib.protocols.chat import ChatMessage, EndStreamContent

from skillstream import Client
from skillstream.breaking_off import break_off
from skillstream.clock import Clock
from skillstream.task import Task
from skillstream_router.connect.broker import ConnectBroker
from skillstream_router.connect.deliveries import Deliveries
from skillstream_router.connect.following import events_to_the_end, refused, submit_once
from skillstream_router.connect.persistence import persist
from skillstream_schemas.connect_errors import PeerRefused, PeerUnavailable
from skillstream_schemas.errors import SkillstreamError
from skillstream_schemas.event import ChunkEvent, FinalEvent
from skillstream_schemas.ids import START

from .answer import Answer, Content
from .identity import ChatAgent
from .post import ChatPace, Post
from .turn import Turn

log = logging.getLogger(__name__)


class Lane:
    """Responsible for the turns of one sender in one session: answered in their order.

    `run` ends when nothing waits. `payer` is charged for the tasks; `on_ended` hears the task id of each turn that is over.
    """

    def __init__(
        self,
        agent: ChatAgent,
        client: Client,
        broker: ConnectBroker,
        deliveries: Deliveries[Turn],
        post: Post,
        clock: Clock,
        pace: ChatPace,
        payer: str | None,
        on_ended: Callable[[str], None],
    ) -> None:
        self.waiting: deque[tuple[Turn, asyncio.Task[None]]] = deque()
        self._agent, self._client, self._broker, self._deliveries = agent, client, broker, deliveries
        self._post, self._clock, self._pace, self._payer, self._on_ended = post, clock, pace, payer, on_ended

    def __repr__(self) -> str:
        return f"<Lane {self._agent.name} waiting={len(self.waiting)}>"

    def put(self, turn: Turn, acknowledgement: asyncio.Task[None]) -> None:
        """Takes a turn whose acknowledgement is on its way: that is to arrive before the answer."""
        self.waiting.append((turn, acknowledgement))

    async def run(self) -> None:
        """Answers what waits, in order."""
        while self.waiting:
            turn, acknowledgement = self.waiting[0]
            try:
                await self._answer(turn, acknowledgement)
            except (PeerRefused, PeerUnavailable) as error:
                log.error("the answer to message %s does not arrive: %s", turn.msg_id, error)
            except Exception:
                log.exception("message %s is not answered: it is taken up at the next start", turn.msg_id)
                self.waiting.popleft()
                continue
            await persist(f"message {turn.msg_id}", partial(self._deliveries.end, turn.delivery, turn.ended()))
            self.waiting.popleft()
            self._on_ended(turn.task_id)

    async def _answer(self, turn: Turn, acknowledgement: asyncio.Task[None]) -> None:
        if turn.is_open:  # this process began anew: what the old one had open is closed, and all is said again
            await self._send(turn, [[EndStreamContent(stream_id=turn.stream_id(turn.streams))]])
            turn = self._noted(turn, is_open=False)
        answer = Answer(turn.stream_id, turn.streams)
        try:
            task = await self._submit(turn)
        except SkillstreamError as error:
            await self._say(turn, answer, answer.take(refused(self._clock, error)))
            return
        turn = self._noted(turn, submitted=True, message="", data=[], metadata={})
        await asyncio.wait((acknowledgement,), timeout=self._pace.acknowledgement_s)
        await self._follow(turn, answer, task)

    async def _submit(self, turn: Turn) -> Task:
        if turn.submitted:
            return self._client.task(turn.task_id)
        link = self._agent.link
        follows = await persist("a turn", lambda: self._broker.last_turn(link, turn.context_id))
        task = await submit_once(
            self._client, self._agent.name, self._agent.skill, turn.message, task_id=turn.task_id, context_id=turn.context_id,
            follows=None if follows == turn.task_id else follows, sender_id=turn.sender, payer=self._payer,
            data=turn.data or None, metadata=dict(turn.metadata) or None,
        )  # fmt: skip
        await persist("a turn", lambda: self._broker.set_last_turn(link, turn.context_id, turn.task_id))
        return task

    async def _follow(self, turn: Turn, answer: Answer, task: Task) -> None:
        """Sends what comes; text that waits for the end of its sentence is sent after `flush_s` all the same.

        Text that came while a message was under way goes together in the next one.
        """
        async with aclosing(events_to_the_end(task, START, self._clock)) as events:
            coming = asyncio.ensure_future(anext(events))
            try:
                while True:
                    await asyncio.wait((coming,), timeout=self._pace.flush_s if answer.waits else None)
                    if not coming.done():
                        turn = await self._say(turn, answer, answer.flush())
                        continue
                    event = coming.result()
                    if isinstance(event, FinalEvent):
                        await self._say(turn, answer, answer.take(event))
                        return
                    coming = asyncio.ensure_future(anext(events))
                    if isinstance(event, ChunkEvent) and event.text is not None:
                        answer.add(event.text)
                        await asyncio.sleep(0)  # an event that is there already is there after this turn of the loop
                        if not (coming.done() and answer.has_room):
                            turn = await self._say(turn, answer, answer.ripe())
                    else:
                        turn = await self._say(turn, answer, answer.take(event))
            finally:
                await break_off(coming)

    async def _say(self, turn: Turn, answer: Answer, messages: Sequence[Content]) -> Turn:
        """Sends messages; a stream is written down before it opens, so that whoever comes after a crash can close it."""
        if answer.streams > turn.streams:
            turn = turn.model_copy(update={"streams": answer.streams, "is_open": True})
            opened = turn
            await persist(f"message {turn.msg_id}", lambda: self._deliveries.keep(opened.delivery, opened))
        await self._send(turn, messages)
        return turn if turn.is_open == answer.is_open else self._noted(turn, is_open=answer.is_open)

    async def _send(self, turn: Turn, messages: Sequence[Content]) -> None:
        for contents in messages:
            await self._post.send(self._agent, turn.sender, turn.session, ChatMessage(contents))

    def _noted(self, turn: Turn, **changes: object) -> Turn:
        turn = turn.model_copy(update=changes)
        self._deliveries.note(turn.delivery, turn)
        return turn
