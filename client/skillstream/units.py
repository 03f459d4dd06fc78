"""What travels in a batch: commands that belong together, and who hears their answers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from skillstream_schemas.errors import BrokerUnavailable

from .resp import Reply


class Unit(Protocol):
    """Commands that travel together in one batch."""

    def pack(self) -> tuple[bytes, int]:
        """Called at the moment of writing: the packed commands and how many answers they bring; (b"", 0) for none."""

    def deliver(self, replies: Sequence[Reply] | BrokerUnavailable) -> None:
        """Called with the answers, or with the error after which nobody knows whether they were executed.

        Raises ValueError, once all who wait have been told, where an answer fits no question.
        """


class Waiting:
    """Commands whose caller awaits the answers; a caller that was cancelled misses them, nobody else does.

    The answer to one command is that reply, to several a list.
    """

    __slots__ = ("_count", "_packed", "answer")

    def __init__(self, packed: bytes, count: int) -> None:
        self._packed, self._count = packed, count
        self.answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

    def pack(self) -> tuple[bytes, int]:
        """The commands, unless the caller is gone."""
        return (b"", 0) if self.answer.cancelled() else (self._packed, self._count)

    def deliver(self, replies: Sequence[Reply] | BrokerUnavailable) -> None:
        """Wakes the caller."""
        if self.answer.done():
            return
        if isinstance(replies, BrokerUnavailable):
            self.answer.set_exception(replies)
        else:
            self.answer.set_result(replies[0] if self._count == 1 else replies)
