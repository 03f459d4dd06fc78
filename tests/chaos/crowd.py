"""The clients of a chaos run: they submit until it is acknowledged, cancel, contest, and read along through all faults."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from itertools import cycle

from skillstream import Client
from skillstream_schemas.errors import BrokerUnavailable, ResultTimeout, SkillstreamError, TaskIdTaken
from skillstream_schemas.event import ChunkEvent, FinalEvent, ResetEvent

from .orders import Errand
from .storm_agent import agent

_PAUSE_S = 0.05
_ANSWER_S = 5.0


class Crowd:
    """Responsible for all errands.

    `counts` says what was done, `acknowledged` which tasks stand, `violations` what clients must never be told.
    """

    def __init__(self, clients: Sequence[Client], errands: Sequence[Errand]) -> None:
        self.counts: Counter[str] = Counter()
        self.violations: list[str] = []
        self.acknowledged: list[str] = []
        self._clients = cycle(clients)
        self._errands = errands

    async def run(self) -> None:
        """Runs all errands, each at its time, to their ends."""
        start_s = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as group:
            for errand in self._errands:
                await asyncio.sleep(max(0.0, start_s + errand.at_s - asyncio.get_running_loop().time()))
                group.create_task(self._guarded(errand))

    async def _guarded(self, errand: Errand) -> None:
        try:
            await self._errand(errand)
        except SkillstreamError as error:
            self.violations.append(f"{errand.order.task_id} ({errand.order.skill}): a client was told {error}")

    async def _errand(self, errand: Errand) -> None:
        async with asyncio.TaskGroup() as group:
            if errand.deadline_after_s is not None:
                errand.order.deadline_ms = int((time.time() + errand.deadline_after_s) * 1000)
            for _ in range(errand.copies):
                group.create_task(self._submit(errand, next(self._clients)))
            await self._submit(errand, next(self._clients))
            self.counts["tasks"] += 1
            self.acknowledged.append(errand.order.task_id)
            self.counts["copies"] += errand.copies
            if errand.is_followed:
                group.create_task(self._follow(errand, next(self._clients)))
            if errand.is_contested:
                group.create_task(self._contest(errand, next(self._clients)))
            if errand.cancel_after_s is not None:
                await asyncio.sleep(errand.cancel_after_s)
                await self._cancel(errand, next(self._clients))

    async def _submit(self, errand: Errand, client: Client, message: str | None = None) -> None:
        order = errand.order
        while True:
            try:
                await client.submit(
                    agent.name,
                    order.skill,
                    order.message if message is None else message,
                    task_id=order.task_id,
                    payer=order.payer,
                    context_id=order.context_id,
                    deadline=None if order.deadline_ms is None else datetime.fromtimestamp(order.deadline_ms / 1000, UTC),
                    delay=order.delay_ms / 1000,
                )
            except BrokerUnavailable:
                self.counts["repeated calls"] += 1
                await asyncio.sleep(_PAUSE_S)
            else:
                return

    async def _contest(self, errand: Errand, client: Client) -> None:
        """Asks for something else under the same id."""
        try:
            await self._submit(errand, client, "{}{}")
        except TaskIdTaken:
            self.counts["contests"] += 1
        else:
            self.violations.append(f"{errand.order.task_id}: another request was taken under its id")

    async def _cancel(self, errand: Errand, client: Client) -> None:
        order = errand.order
        reason = f"nobody waits for {order.task_id}"
        order.cancel_reasons.append(reason)
        while True:
            try:
                final = await client.task(order.task_id).cancel(reason, timeout=_ANSWER_S)
            except (BrokerUnavailable, ResultTimeout):
                self.counts["repeated calls"] += 1
                await asyncio.sleep(_PAUSE_S)
            else:
                self.counts["cancels"] += 1
                order.answered.append(str(final.id))
                return

    async def _follow(self, errand: Errand, client: Client) -> None:
        order = errand.order
        order.followed = []
        cursor = "0"
        while True:
            try:
                async with aclosing(client.task(order.task_id).events(cursor)) as events:
                    async for event in events:
                        if isinstance(event, ResetEvent):
                            order.followed_text = order.followed_text[: event.keep]
                            continue
                        cursor = str(event.id)
                        order.followed.append(cursor)
                        if isinstance(event, ChunkEvent):
                            order.followed_text += event.text or ""
                        if isinstance(event, FinalEvent):
                            self.counts["followers"] += 1
                            return
            except BrokerUnavailable:
                self.counts["repeated calls"] += 1
                await asyncio.sleep(_PAUSE_S)
