"""The connectors' seam to Redis: what they owe to the other side, kept beside the task streams that it comes from."""

from __future__ import annotations

from collections.abc import Mapping

from skillstream.broker import Broker, checked
from skillstream.resp import Argument
from skillstream_schemas.settings import Settings


class ConnectBroker(Broker):
    """Responsible for what connectors ask of Redis beside what every client asks; errors as those of Broker.

    `link` names one agent at one foreign network; a delivery is what was taken from there and not yet answered in full.
    All keys of a link are in one slot, and all have a TTL.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.pipeline.outlasts_denial = True
        self._kept_ms = int(settings.stream_ttl_s * 1000)
        self._turn_ms = int(settings.context_ttl_s * 1000)

    async def open_deliveries(self, link: str) -> dict[str, bytes]:
        """Deliveries of a link that are owed, by id."""
        found = await self.pipeline.call("HGETALL", self.keys.connect_open(link))
        pairs = found.items() if isinstance(found, dict) else zip(found[::2], found[1::2], strict=True)
        return {name.decode(errors="replace"): record for name, record in pairs}

    async def keep_deliveries(self, link: str, records: Mapping[str, str]) -> None:
        """Writes deliveries down as owed."""
        key = self.keys.connect_open(link)
        values = [part for pair in records.items() for part in pair]
        await self._together([("HSET", key, *values), ("PEXPIRE", key, self._kept_ms)], "keep deliveries")

    async def end_delivery(self, link: str, delivery: str, record: str | None) -> None:
        """Takes a delivery off what is owed; `record` is what a repetition finds, None for one that never counted."""
        commands: list[tuple[Argument, ...]] = [("HDEL", self.keys.connect_open(link), delivery)]
        if record is not None:
            commands.insert(0, ("SET", self.keys.connect_done(link, delivery), record, "PX", self._kept_ms))
        await self._together(commands, "end a delivery")

    async def ended_delivery(self, link: str, delivery: str) -> bytes | None:
        """What was kept of a delivery that ended, None where there was none within its time."""
        record: bytes | None = await self.pipeline.call("GET", self.keys.connect_done(link, delivery))
        return record

    async def last_turn(self, link: str, conversation: str) -> str | None:
        """The task of a conversation's last turn."""
        task_id = await self.pipeline.call("GET", self.keys.connect_turn(link, conversation))
        return None if task_id is None else task_id.decode(errors="replace")

    async def set_last_turn(self, link: str, conversation: str, task_id: str) -> None:
        """Says which task a conversation's next turn follows."""
        await self.pipeline.call("SET", self.keys.connect_turn(link, conversation), task_id, "PX", self._turn_ms)

    async def _together(self, commands: list[tuple[Argument, ...]], step: str) -> None:
        checked(await self.pipeline.batch([("MULTI",), *commands, ("EXEC",)], step), step)
