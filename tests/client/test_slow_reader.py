"""A reader that takes nothing holds few megabytes, however large the entries are, and misses none."""

from __future__ import annotations

from contextlib import aclosing

import pytest

from skillstream import Client
from skillstream_schemas.limits import KIB, MIB

from .bounds import soon, until
from .hand_worker import HandWorker

CHUNKS = 200
CHUNK = "x" * (63 * KIB)


@pytest.mark.guarantee("G3")
async def test_large_entries_wait_on_the_broker_and_not_with_the_reader(client: Client, hand: HandWorker) -> None:
    hand.submit("t1")
    hand.open("t1")
    hand.say("t1", *[CHUNK] * CHUNKS)
    hand.finish("t1", f"1-{CHUNKS + 2}", "", chunks=CHUNKS)
    async with aclosing(client.task("t1").batches()) as batches:
        got = await soon(anext(batches))
        ((feed,),) = client._hub._feeds.values()  # type: ignore[attr-defined]
        await until(lambda: not feed.has_room)
        for held in (got, feed._entries):
            assert sum(len(item[1].get("text", "")) for item in held if isinstance(item, tuple)) <= 2 * MIB
        async for batch in batches:
            got += batch
    assert len(got) == CHUNKS + 3
