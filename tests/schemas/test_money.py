"""Money is whole micro-USD, and never silently rounded."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillstream_schemas.errors import InvalidRequest
from skillstream_schemas.money import MAX_MICROS, micros_to_usd, usd_to_micros


@given(st.integers(0, MAX_MICROS))
def test_micros_to_usd_and_back_is_the_same_amount(micros: int) -> None:
    assert usd_to_micros(micros_to_usd(micros)) == micros
    assert usd_to_micros(Decimal(micros_to_usd(micros))) == micros


@given(st.integers(-MAX_MICROS, MAX_MICROS))
def test_usd_are_written_with_two_to_six_places(micros: int) -> None:
    written = micros_to_usd(micros)
    assert Decimal(written) * 1_000_000 == micros
    assert 2 <= len(written.partition(".")[2]) <= 6


@given(st.integers(0, 10**9))
def test_whole_dollars_may_be_integers(dollars: int) -> None:
    assert usd_to_micros(dollars) == dollars * 1_000_000


@given(st.integers(0, 10**9))
def test_floats_count_by_their_shortest_form(micros: int) -> None:
    shown = f"{micros // 1_000_000}.{micros % 1_000_000:06d}"
    assert usd_to_micros(float(shown)) == micros


@pytest.mark.parametrize(
    ("price", "micros"),
    [
        (0.05, 50_000),
        (0.1 + 0.2 - 0.1, None),
        ("0.05", 50_000),
        (Decimal("0.000001"), 1),
        (1e-6, 1),
        ("1e3", 10**9),
        (0, 0),
        ("-0", 0),
    ],
)
def test_known_prices(price: str | Decimal | int | float, micros: int | None) -> None:
    if micros is None:
        with pytest.raises(InvalidRequest, match="finer"):
            usd_to_micros(price)
    else:
        assert usd_to_micros(price) == micros


@pytest.mark.parametrize(
    "price",
    ["0.0000001", 1e-7, Decimal("0.0500001"), "0.05" + "0" * 40 + "1", "999999999." + "9" * 30, Decimal("1E-400")],
)
def test_what_is_finer_than_a_millionth_is_refused(price: str | Decimal | float) -> None:
    with pytest.raises(InvalidRequest, match="finer"):
        usd_to_micros(price)


@pytest.mark.parametrize("price", [-1, "-0.01", -0.000001, "1000000001", "1e999999999", 1e300, Decimal("-1e-9")])
def test_what_is_out_of_range_is_refused_at_once(price: str | Decimal | float) -> None:
    with pytest.raises(InvalidRequest, match="out of range"):
        usd_to_micros(price)


@pytest.mark.parametrize(
    "price", ["", "free", "NaN", "sNaN", float("nan"), float("inf"), "-inf", "$5", "0,05", True, Decimal("NaN")]
)
def test_what_is_no_amount_is_refused(price: str | Decimal | float) -> None:
    with pytest.raises(InvalidRequest, match="not a price"):
        usd_to_micros(price)
