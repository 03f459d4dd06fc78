"""Orders are written and refused alike whether one of their kind came before or not."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillstream import Order
from skillstream.broker import flat
from skillstream.request_writer import RequestWriter
from skillstream_schemas.card import SkillCard
from skillstream_schemas.errors import SkillstreamError
from skillstream_schemas.limits import Limits
from skillstream_schemas.request import HistoryMessage, OnRetry
from tests.schemas.strategies import names, texts

LIMITS = Limits(message_bytes=40)
CARD = SkillCard(name="say", max_attempts=5, price_micros=7, on_retry=OnRetry.RESUME)

labels = st.none() | st.sampled_from(["acme", "", "x" * 300, "\ud800", 5, ["acme"]])
maybe_names: st.SearchStrategy[Any] = st.none() | names | st.sampled_from(["", "..", "a b", 5, ["c"]])
messages: st.SearchStrategy[Any] = texts | st.sampled_from(["x" * 41, "ü" * 21, "\ud800", 5, None, b"hi"])


def outcome(writer: RequestWriter, order: Order) -> Sequence[str] | tuple[type, str]:
    """The fields, or how the order is refused."""
    try:
        return list(writer.write(order, CARD))
    except SkillstreamError as error:
        return type(error), error.message


def expected(order: Order) -> Sequence[str] | tuple[type, str]:
    """The same by the models alone."""
    try:
        return flat(order.request(CARD, LIMITS).to_fields())
    except SkillstreamError as error:
        return type(error), error.message


@given(
    st.lists(
        st.builds(
            Order, agent=st.sampled_from(["echo", "a b"]), skill=st.sampled_from(["say", ""]), message=messages,
            context_id=maybe_names, follows=maybe_names, payer=labels, sender_id=labels,
            parent=st.sampled_from([None, None, "p1"]), metadata=st.sampled_from([None, None, {}, {"n": 1}]),
            data=st.sampled_from([None, None, {"x": 1}, 0]),
        ),
        min_size=2,
        max_size=6,
    )
)  # fmt: skip
def test_an_order_is_written_as_the_models_write_it(orders: list[Order]) -> None:
    writer = RequestWriter(LIMITS)
    for order in (*orders, *orders):
        assert outcome(writer, order) == expected(order)


@pytest.mark.parametrize(
    "own",
    [
        {"deadline": datetime(2031, 5, 1, tzinfo=UTC)}, {"history": [HistoryMessage(role="user", text="hi")]}, {"history": []},
        {"traceparent": "00-1"}, {"metadata": {"n": [1]}}, {"data": {"x": None}}, {"parent": "p"},
    ],
)  # fmt: skip
def test_what_an_order_has_of_its_own_goes_into_no_other(own: dict[str, Any]) -> None:
    writer = RequestWriter(LIMITS)
    rich, plain = Order("echo", "say", "hi", **own), Order("echo", "say", "ho")
    for order in (rich, plain, rich, plain):
        assert outcome(writer, order) == expected(order)


def test_another_card_is_another_price() -> None:
    writer = RequestWriter(LIMITS)
    order = Order("echo", "say", "hi")
    writer.write(order, CARD)
    dearer = CARD.model_copy(update={"price_micros": 9})
    assert list(writer.write(order, dearer)) == flat(order.request(dearer, LIMITS).to_fields())


def test_many_payers_take_no_more_memory_than_some() -> None:
    writer = RequestWriter(LIMITS)
    for number in range(3000):
        writer.write(Order("echo", "say", "hi", payer=f"payer-{number}"), CARD)
    assert len(writer._kinds) <= 1024
