"""Requests as they go to a broker; those of one kind differ in little, so that the rest is checked and written once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from skillstream_schemas.card import SkillCard
from skillstream_schemas.ids import is_name
from skillstream_schemas.limits import Limits, utf8_length

from .broker import flat
from .order import Order

_KINDS = 1024
_OWN = ("message", "context_id", "follows")
"""What orders of one kind differ in."""


class _Kind(NamedTuple):
    """What the requests of a kind share: fields as name, value, … before and behind the message, and behind the names."""

    card: SkillCard
    before: Sequence[str]
    behind: Sequence[str]
    rest: Sequence[str]


class RequestWriter:
    """Responsible for the fields of an order's request, checked; orders to a skill for one payer and sender are of a kind."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._kinds: dict[tuple[str, str, str | None, str | None], _Kind] = {}

    def write(self, order: Order, card: SkillCard) -> Sequence[str]:
        """Name, value, name, value, …; raises InvalidRequest (MessageTooLarge, InvalidName)."""
        if not _is_plain(order):
            return flat(order.request(card, self._limits).to_fields())
        return self._known(order, card) or self._learn(order, card)

    def _known(self, order: Order, card: SkillCard) -> list[str] | None:
        """The fields where one of the kind was checked before and what is the order's own is plainly right."""
        message = order.message
        try:
            kind = self._kinds.get((order.agent, order.skill, order.payer, order.sender_id))
            if kind is None or kind.card is not card or type(message) is not str:
                return None
            if utf8_length(message) > self._limits.message_bytes:
                return None
        except (TypeError, UnicodeEncodeError):  # no text at all, or none that can be written
            return None
        fields = [*kind.before, message, *kind.behind]
        for name, value in (("context_id", order.context_id), ("follows", order.follows)):
            if value is not None:
                if type(value) is not str or not is_name(value):
                    return None
                fields += (name, value)
        fields += kind.rest
        return fields

    def _learn(self, order: Order, card: SkillCard) -> list[str]:
        fields = order.request(card, self._limits).to_fields()
        shared = flat({name: value for name, value in fields.items() if name not in _OWN})
        message, names = 4, 10  # agent and skill stand before the message; attempts, price and what a retry does behind it
        if len(self._kinds) >= _KINDS:
            self._kinds.clear()
        self._kinds[order.agent, order.skill, order.payer, order.sender_id] = _Kind(
            card, (*shared[:message], "message"), shared[message:names], shared[names:]
        )
        return flat(fields)


def _is_plain(order: Order) -> bool:
    return (
        order.metadata is None and order.data is None and order.history is None
        and order.deadline is None and order.parent is None and order.traceparent is None
    )  # fmt: skip
