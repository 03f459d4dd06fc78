"""Money: integers in micro-USD."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

from .errors import InvalidRequest

MICROS_PER_USD = 1_000_000
MAX_MICROS = 10**15
Price = str | Decimal | int | float


def usd_to_micros(price: Price) -> int:
    """Converts a price in USD to whole micro-USD; a float counts by its shortest decimal form (0.05 is 0.05).

    Raises InvalidRequest for what is no amount, is negative, is above a thousand million dollars,
    or is finer than a millionth.
    """
    try:
        usd = Decimal(repr(price) if isinstance(price, float) else str(price))
    except (InvalidOperation, ValueError):
        raise InvalidRequest(f"{price!r} is not a price in USD") from None
    if not usd.is_finite():
        raise InvalidRequest(f"{price!r} is not a price in USD")
    if not 0 <= usd <= MAX_MICROS // MICROS_PER_USD:  # before any arithmetic: 1e999999 would take for ever
        raise InvalidRequest(f"a price of {price} USD is out of range")
    whole = int(usd * MICROS_PER_USD)
    if Decimal(whole).scaleb(-6) != usd:  # compared exactly; the product alone may be rounded
        raise InvalidRequest(f"a price of {price} USD is finer than a millionth of a dollar")
    return whole


def micros_to_usd(micros: int) -> str:
    """Writes micro-USD as decimal USD with at least two places: 50000 is `0.05`, -1 is `-0.000001`."""
    sign = "-" if micros < 0 else ""
    whole, part = divmod(abs(micros), MICROS_PER_USD)
    places = f"{part:06d}".rstrip("0").ljust(2, "0")
    return f"{sign}{whole}.{places}"
