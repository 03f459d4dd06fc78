"""Where messages arrive: kept once, acknowledged each time, put into the lane of their conversation."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any
from uuid import UUID

from uagents_core.contrib.protocols.chat import ChatAcknowledgement, ChatMessage
from uagents_core.models import ErrorMessage

from skillstream import Client
from skillstream.breaking_off import break_off
from skillstream.clock import Clock
from skillstream_router.connect.broker import ConnectBroker
from skillstream_router.connect.deliveries import Deliveries
from skillstream_schemas.connect_errors import PeerRefused, PeerUnavailable

from .endpoint import Busy
from .envelopes import Opened
from .identity import ChatAgent
from .lane import Lane
from .post import ChatPace, Post
from .turn import Turn, turn_of

log = logging.getLogger(__name__)
_MOST_WAITING = 1000
Elsewhere = Callable[[Opened], Awaitable[bool]]
"""Takes what is no question to us, but an answer to one of ours."""


class Reception:
    """Responsible for what comes to our agents: nothing is lost or answered twice from here on.

    A message is known by its sender and `msg_id`, for as long as its record is kept, across restarts.
    """

    def __init__(
        self,
        agents: Mapping[str, ChatAgent],
        client: Client,
        broker: ConnectBroker,
        post: Post,
        clock: Clock,
        pace: ChatPace,
        payer: str | None,
        elsewhere: Elsewhere,
    ) -> None:
        self._agents, self._client, self._broker, self._post = agents, client, broker, post
        self._clock, self._pace, self._payer, self._elsewhere = clock, pace, payer, elsewhere
        self.deliveries = {address: Deliveries(broker, agent.link, Turn) for address, agent in agents.items()}
        self._lanes: dict[tuple[str, str, UUID], Lane] = {}
        self._known: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<Reception lanes={len(self._lanes)} open={len(self._known)}>"

    async def begin_owed(self) -> None:
        """Goes on with what an earlier process took and did not answer; errors as those of Deliveries."""
        for address, agent in self._agents.items():
            for turn in sorted((await self.deliveries[address].owed()).values(), key=lambda each: each.received_at):
                self._known.add(turn.task_id)
                self._begin(agent, turn)

    async def take(self, opened: Opened) -> Busy | None:
        """Takes what came in an envelope; a message is kept when this returns. Errors as those of Deliveries."""
        is_answer = await self._elsewhere(opened)
        match opened.content:
            case ChatMessage(msg_id=msg_id) if is_answer:
                self._acknowledge(opened.agent, opened.sender, opened.session, msg_id)
            case ChatMessage() as message:
                return await self._take(opened, message)
            case ErrorMessage(error=error):
                log.warning("%s says: %s", opened.sender, error[:300])
            case _:
                pass  # an acknowledgement: nothing here waits for one
        return None

    async def close(self) -> None:
        """Breaks off what is under way; the next process goes on with it."""
        await break_off(*self._tasks)

    async def _take(self, opened: Opened, message: ChatMessage) -> Busy | None:
        turn = turn_of(opened, message, self._clock.now_ms())
        if turn is None or turn.task_id in self._known:
            self._acknowledge(opened.agent, opened.sender, opened.session, message.msg_id)
            return None
        waiting = self._lanes.get((opened.agent.address, *turn.lane))
        if waiting is not None and len(waiting.waiting) >= _MOST_WAITING:
            return Busy()
        self._known.add(turn.task_id)  # before anything is waited for: the same message may come twice at once
        deliveries = self.deliveries[opened.agent.address]
        try:
            if await deliveries.ended(turn.delivery) is not None:
                self._known.discard(turn.task_id)
                self._acknowledge(opened.agent, opened.sender, opened.session, message.msg_id)
                return None
            await deliveries.keep(turn.delivery, turn)
        except BaseException:
            self._known.discard(turn.task_id)
            raise
        self._begin(opened.agent, turn)
        return None

    def _begin(self, agent: ChatAgent, turn: Turn) -> None:
        acknowledgement = self._acknowledge(agent, turn.sender, turn.session, turn.msg_id)
        key = (agent.address, *turn.lane)
        if (lane := self._lanes.get(key)) is not None:
            lane.put(turn, acknowledgement)
            return
        lane = self._lanes[key] = Lane(
            agent, self._client, self._broker, self.deliveries[agent.address], self._post, self._clock, self._pace, self._payer,
            self._known.discard,
        )  # fmt: skip
        lane.put(turn, acknowledgement)
        self._spawn(self._run(lane, key))

    async def _run(self, lane: Lane, key: tuple[str, str, UUID]) -> None:
        try:
            await lane.run()
        finally:
            del self._lanes[key]  # in the same turn in which it found nothing waiting: what comes now gets a lane of its own

    def _acknowledge(self, agent: ChatAgent, sender: str, session: UUID, msg_id: UUID) -> asyncio.Task[None]:
        return self._spawn(self._send_acknowledgement(agent, sender, session, msg_id))

    async def _send_acknowledgement(self, agent: ChatAgent, sender: str, session: UUID, msg_id: UUID) -> None:
        try:
            await self._post.send(agent, sender, session, ChatAcknowledgement(msg_id))
        except (PeerRefused, PeerUnavailable) as error:
            log.warning("message %s is not acknowledged: %s", msg_id, error)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
