"""The relay between a producer and its reader: bounded, in order, nothing lost, always closed."""

from __future__ import annotations

import asyncio
from itertools import chain

import pytest

from skillstream_worker.workflows.relay import Put, Relay
from tests.client.bounds import BOUND_S, soon, until


async def read(relay: Relay[int], pause_s: float = 0.0) -> list[list[int]]:
    """All batches."""
    batches = []
    while batch := await soon(relay.take(pause_s)):
        batches.append(batch)
    return batches


async def test_items_come_in_order_and_the_end_is_an_empty_batch() -> None:
    async def produce(put: Put[int]) -> None:
        for number in range(100):
            await put(number)

    async with Relay(produce, ahead=7) as relay:
        batches = await read(relay)
        assert await soon(relay.take()) == []
    assert list(chain.from_iterable(batches)) == list(range(100))
    assert max(map(len, batches)) <= 7


async def test_the_producer_waits_for_its_reader() -> None:
    made: list[int] = []

    async def produce(put: Put[int]) -> None:
        for number in range(10):
            await put(number)
            made.append(number)

    async with Relay(produce, ahead=3) as relay:
        await until(lambda: len(made) == 3)
        for _ in range(10):
            await asyncio.sleep(0)
        assert made == [0, 1, 2]
        assert "unread=3" in repr(relay)
        await read(relay)
    assert len(made) == 10


@pytest.mark.parametrize("error", [KeyError("x"), SystemExit(3), KeyboardInterrupt()])
async def test_an_error_comes_behind_the_last_item(error: BaseException) -> None:
    async def produce(put: Put[int]) -> None:
        await put(1)
        raise error

    async with Relay(produce, ahead=5) as relay:
        async with asyncio.timeout(BOUND_S):  # not `soon`, whose task would raise an exit out of the loop
            assert await relay.take() == [1]
            with pytest.raises(type(error)) as caught:
                await relay.take()
    assert caught.value is error


async def test_the_first_comes_at_once_and_later_ones_together() -> None:
    async def produce(put: Put[int]) -> None:
        await put(0)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for number in range(1, 20):
            await put(number)
            await asyncio.sleep(0)

    async with Relay(produce, ahead=100) as relay:
        assert await read(relay, pause_s=60) == [[0], list(range(1, 20))]  # which the producer's end cuts short


async def test_the_end_of_the_producer_ends_the_pause() -> None:
    async def produce(put: Put[int]) -> None:
        await put(0)
        await put(1)

    async with Relay(produce, ahead=100) as relay:
        assert list(chain.from_iterable(await read(relay, pause_s=60))) == [0, 1]  # each wait is bounded by 5 s


async def test_leaving_waits_for_the_producer_even_where_it_is_cancelled_meanwhile() -> None:
    cleaning, may_end, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def produce(put: Put[int]) -> None:
        try:
            await put(1)
            await asyncio.Event().wait()
        finally:
            cleaning.set()
            await may_end.wait()
            ended.set()

    async def leave() -> None:
        async with Relay(produce, ahead=1) as relay:
            await relay.take()

    leaving = asyncio.create_task(leave())
    await soon(cleaning.wait())
    leaving.cancel()
    await asyncio.sleep(0)
    assert not leaving.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await soon(leaving)
    assert ended.is_set()


async def test_leaving_before_the_producer_began() -> None:
    async def produce(put: Put[int]) -> None:
        raise AssertionError("never begins")

    async with Relay(produce, ahead=1):
        pass
