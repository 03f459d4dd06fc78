"""What a connector owes to the other side, kept on the broker so that it survives the connector."""

from __future__ import annotations

import asyncio
import logging
from typing import Generic, TypeVar

from pydantic import BaseModel, ValidationError

from skillstream_schemas.errors import BrokerRefused, BrokerUnavailable

from .broker import ConnectBroker

log = logging.getLogger(__name__)
T = TypeVar("T", bound=BaseModel)
_PAUSE_S = 0.2


class Deliveries(Generic[T]):
    """Responsible for the deliveries of one link: owed from `keep` on, until `end`; each is a record of type `kind`.

    `keep` and `end` return once the broker has it. `note` is for progress that may be lost: many notes travel in one
    write. Errors: BrokerUnavailable, BrokerRefused.
    """

    def __init__(self, broker: ConnectBroker, link: str, kind: type[T]) -> None:
        self.link = link
        self._broker = broker
        self._kind = kind
        self._noted: dict[str, T] = {}
        self._fresh = asyncio.Event()
        self._writing = asyncio.Lock()  # a note must not come behind the end of its delivery

    def __repr__(self) -> str:
        return f"<Deliveries {self.link} noted={len(self._noted)}>"

    async def owed(self) -> dict[str, T]:
        """All that is owed, by id; what cannot be read is logged and left alone."""
        found = await self._broker.open_deliveries(self.link)
        read = {delivery: self._read(delivery, record) for delivery, record in found.items()}
        return {delivery: record for delivery, record in read.items() if record is not None}

    async def ended(self, delivery: str) -> T | None:
        """The record of a delivery that ended, None for one not heard of."""
        record = await self._broker.ended_delivery(self.link, delivery)
        return None if record is None else self._read(delivery, record)

    async def keep(self, delivery: str, record: T) -> None:
        """Writes a delivery down as owed."""
        async with self._writing:
            self._noted.pop(delivery, None)
            await self._broker.keep_deliveries(self.link, {delivery: _text(record)})

    async def end(self, delivery: str, record: T | None) -> None:
        """Takes a delivery off; a repetition finds `record`, None forgets it."""
        async with self._writing:
            self._noted.pop(delivery, None)
            await self._broker.end_delivery(self.link, delivery, None if record is None else _text(record))

    def note(self, delivery: str, record: T) -> None:
        """Has a newer record of an owed delivery written soon."""
        self._noted[delivery] = record
        self._fresh.set()

    async def run(self) -> None:
        """Writes notes, until cancelled."""
        while True:
            await self._fresh.wait()
            self._fresh.clear()
            try:
                async with self._writing:
                    await self._write_noted()
            except (BrokerUnavailable, BrokerRefused) as error:
                log.warning("progress of deliveries of %s is not written yet: %s", self.link, error)
                self._fresh.set()
                await asyncio.sleep(_PAUSE_S)

    async def _write_noted(self) -> None:
        noted, self._noted = self._noted, {}
        if not noted:
            return
        try:
            await self._broker.keep_deliveries(self.link, {name: _text(record) for name, record in noted.items()})
        except BaseException:
            self._noted = {**noted, **self._noted}
            raise

    def _read(self, delivery: str, record: bytes) -> T | None:
        try:
            return self._kind.model_validate_json(record)
        except ValidationError as error:
            log.error("delivery %s of %s cannot be read: %s", delivery, self.link, error.errors(include_input=False)[:1])
            return None


def _text(record: BaseModel) -> str:
    return record.model_dump_json(exclude_defaults=True)
