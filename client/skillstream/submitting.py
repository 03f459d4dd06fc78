"""Submissions: orders in, tasks on the broker and on their agents' queues (rule P1)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from skillstream_schemas.card import SkillCard
from skillstream_schemas.errors import BrokerUnavailable, NotAllSubmitted, SkillstreamError, TaskIdTaken
from skillstream_schemas.ids import check_name, new_task_id
from skillstream_schemas.limits import Limits
from skillstream_schemas.request import TaskRequest

from .broker import Broker, Submission, Submitted
from .cards import Cards
from .order import Order
from .request_writer import RequestWriter
from .resp import ReplyError

_WAVE = 2000
"""Submissions of one caller that wait at once: what others submit meanwhile need not wait for all of them."""
_ORDERS_A_TURN = 500
"""How many orders are checked before others have a turn of the event loop."""


class Submitting:
    """Responsible for what a submission takes: the skill's card, a checked request, both steps, and what stood there before.

    `is_durable` waits until a replica has what was written.
    """

    def __init__(self, broker: Broker, cards: Cards, limits: Limits, *, is_durable: bool = False) -> None:
        self.broker, self._cards, self._limits, self._is_durable = broker, cards, limits, is_durable
        self._writer = RequestWriter(limits)

    async def check(self, order: Order) -> TaskRequest:
        """The request of an order; raises as `submit` does before anything is sent."""
        card = self._cards.known(order.agent, order.skill) or await self._cards.find(order.agent, order.skill)
        return order.request(card, self._limits)

    async def submit(self, order: Order) -> str:
        """Queues a task; returns its id once the broker has it.

        Raises UnknownAgent, UnknownSkill, InvalidRequest, TaskIdTaken, NotReplicated, BrokerUnavailable, BrokerRefused.
        """
        return await self.place(order, self.prepared(order) or await self._prepared(order))

    def prepared(self, order: Order) -> Submission | None:
        """The submission of an order, None where the skill's card has to be read first; raises InvalidRequest."""
        card = self._cards.known(order.agent, order.skill)
        return None if card is None else self._written(order, card)

    async def place(self, order: Order, submission: Submission) -> str:
        """Has the broker take a submission; returns its id, and raises what `submit` raises from here on."""
        await self._place(order, submission)
        if self._is_durable:
            await self.broker.confirm_replicated([submission])
        return submission.task_id

    async def submit_many(self, orders: Sequence[Order]) -> list[str]:
        """Queues a task for each order, all of them checked before any is sent; returns their ids once the broker has all.

        Raises NotAllSubmitted where it has not, and as `submit`.
        """
        submissions: list[Submission] = []
        for place, order in enumerate(orders):
            submissions.append(await self._named(place, order))
            if not len(submissions) % _ORDERS_A_TURN:
                await asyncio.sleep(0)
        errors: dict[int, SkillstreamError] = {}
        for start in range(0, len(orders), _WAVE):
            wave = slice(start, start + _WAVE)
            failed = await self._place_together(orders[wave], submissions[wave])
            errors |= {start + place: error for place, error in failed.items()}
            if away := [error for error in failed.values() if isinstance(error, BrokerUnavailable)]:
                # patience has ended for these; each further wave would have its own
                errors |= dict.fromkeys(range(start + _WAVE, len(orders)), away[0])
                break
        task_ids = [submission.task_id for submission in submissions]
        if errors:
            raise NotAllSubmitted(task_ids, errors)
        if self._is_durable:
            await self.broker.confirm_replicated(submissions)
        return task_ids

    async def _prepared(self, order: Order) -> Submission:
        return self._written(order, await self._cards.find(order.agent, order.skill))

    async def _named(self, place: int, order: Order) -> Submission:
        try:
            return self.prepared(order) or await self._prepared(order)
        except BrokerUnavailable:
            raise
        except SkillstreamError as error:
            raise type(error)(f"order {place}: {error.message}", hint=error.hint) from None

    def _written(self, order: Order, card: SkillCard) -> Submission:
        fields = self._writer.write(order, card)
        task_id = new_task_id() if order.task_id is None else check_name(order.task_id, "the task id")
        return Submission(order.agent, task_id, fields, order.delay_ms())

    async def _place(self, order: Order, submission: Submission) -> None:
        stood = await self.broker.submit(submission)
        if stood is not None:
            await self._repeat(order, submission, stood)

    async def _place_together(self, orders: Sequence[Order], submissions: Sequence[Submission]) -> dict[int, SkillstreamError]:
        """Has the broker take many submissions; what was wrong with those that it did not take, by place."""
        now_s = asyncio.get_running_loop().time
        patient_until_s = now_s() + self.broker.settings.patience_s
        standing = await self.broker.submit_many(submissions)
        is_over = now_s() >= patient_until_s
        errors: dict[int, SkillstreamError] = {}
        left: list[int] = []
        for place, stood in enumerate(standing):
            if is_over and isinstance(stood, BrokerUnavailable):
                errors[place] = stood
            elif stood is not None:
                left.append(place)
        endings = await asyncio.gather(
            *(self._go_on(orders[place], submissions[place], standing[place]) for place in left), return_exceptions=True
        )
        for place, ending in zip(left, endings, strict=True):
            if isinstance(ending, SkillstreamError):
                errors[place] = ending
            elif ending is not None:
                raise ending
        return dict(sorted(errors.items()))

    async def _go_on(self, order: Order, submission: Submission, stood: Submitted | SkillstreamError | ReplyError | None) -> None:
        if isinstance(stood, Submitted):
            await self._repeat(order, submission, stood)
        else:
            await self._place(order, submission)

    async def _repeat(self, order: Order, submission: Submission, stood: Submitted) -> None:
        """Repairs a submission that broke half way, unless another request has the id."""
        request = await self.check(order)
        if not stood.request.same_order(request):
            differing = ", ".join(stood.request.differing(request))
            raise TaskIdTaken(f"task {submission.task_id} was submitted before with another request: other {differing}")
        if not stood.ended:
            await self.broker.enqueue(submission.agent, submission.task_id, delay_ms=submission.delay_ms)
