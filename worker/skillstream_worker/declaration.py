"""What an author may declare of a skill; each refusal names agent, skill and argument, so that the line is found."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from skillstream_schemas.errors import InvalidRequest
from skillstream_schemas.limits import MAX_LABEL_CHARS, MOST_ATTEMPTS
from skillstream_schemas.money import Price, usd_to_micros
from skillstream_schemas.request import OnRetry

from .chunking import Chunking

_TEXT = "is no text"


class Declaration:
    """Responsible for the arguments of `@agent.skill`: TypeError for one of another kind, ValueError for one out of range.

    `taken` are the names that the agent's skills have.
    """

    def __init__(self, agent: str, name: Any, taken: Container[str]) -> None:
        if callable(name):
            raise TypeError('a skill has a name: @agent.skill("research") instead of @agent.skill')
        self._place = f"skill {str(name)[:40]!r} of agent {agent!r}"
        if not isinstance(name, str):
            raise self._wrong("name", name, _TEXT)
        if not name or len(name) > MAX_LABEL_CHARS:
            raise ValueError(f"{self._place}: a skill's name has 1 to {MAX_LABEL_CHARS} characters")
        if name in taken:
            raise ValueError(f"agent {agent} has a skill {name!r} already")

    def check(
        self, *, description: Any, tags: Any, examples: Any, timeout: Any, max_attempts: Any, retry_on: Any, on_retry: Any,
        chunking: Any,
    ) -> None:  # fmt: skip
        """Looks at all arguments but the price."""
        if not isinstance(description, str):
            raise self._wrong("description", description, _TEXT)
        for argument, texts in (("tags", tags), ("examples", examples)):
            if isinstance(texts, str) or not _all(texts, lambda text: isinstance(text, str)):
                raise self._wrong(argument, texts, "is no list of texts")
        if not _all(retry_on, lambda kind: isinstance(kind, type) and issubclass(kind, BaseException)):
            raise self._wrong("retry_on", retry_on, "is no list of exceptions, such as (ConnectionError,)")
        if on_retry not in tuple(OnRetry):
            raise ValueError(f"{self._place}: on_retry {on_retry!r} is none of {', '.join(OnRetry)}")
        if not isinstance(max_attempts, int):
            raise self._wrong("max_attempts", max_attempts, "is no whole number")
        if not 1 <= max_attempts <= MOST_ATTEMPTS:
            raise ValueError(f"{self._place}: max_attempts {max_attempts} is not between 1 and {MOST_ATTEMPTS}")
        if timeout is not None and not isinstance(timeout, int | float):
            raise self._wrong("timeout", timeout, "is no number of seconds")
        if timeout is not None and not timeout > 0:  # nor NaN
            raise ValueError(f"{self._place}: timeout {timeout} s is not positive")
        if chunking is not None and not isinstance(chunking, Chunking):
            raise self._wrong("chunking", chunking, 'is no Chunking, such as Chunking(boundary="word")')

    def price_micros(self, price_usd: Price | None) -> int:
        """The price in micro-USD; raises InvalidRequest."""
        try:
            return 0 if price_usd is None else usd_to_micros(price_usd)
        except InvalidRequest as error:
            raise InvalidRequest(f"{self._place}: price_usd: {error.message}", hint='an amount such as "0.05"') from None

    def _wrong(self, argument: str, value: Any, what: str) -> TypeError:
        return TypeError(f"{self._place}: {argument} {str(value)[:100]!r} {what}")


def _all(values: Any, fits: Any) -> bool:
    try:
        return all(map(fits, values))
    except TypeError:  # nothing that has values
        return False
