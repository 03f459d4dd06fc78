"""Publishing (rule P5): dense ids, whole batches, and nothing lost or doubled, whatever the wire does."""

from __future__ import annotations

import asyncio

import pytest

from skillstream_schemas.errors import EventTooLarge, OutputTooLarge
from skillstream_schemas.event import HandedBack
from skillstream_schemas.limits import KIB
from skillstream_worker.chunking import Chunking
from tests.client.bounds import soon, until
from tests.support.monitor import Executed, Monitor
from tests.support.protocol_bench import FINAL_FIELDS, TASK, ProtocolBench, staged


@pytest.mark.guarantee("G3")
async def test_ids_are_dense_from_the_opening_to_the_final(bench: ProtocolBench) -> None:
    publication = (await staged(bench)).publication
    for number in range(300):
        publication.add_text(f"{number} ")
        if number % 7 == 0:
            publication.add_entry("type", "status", "text", str(number))
        if number % 50 == 0:
            await asyncio.sleep(0)
    assert await soon(publication.finish(FINAL_FIELDS))
    assert bench.ids(TASK) == ["0-1", *(f"1-{seq}" for seq in range(1, 300 + 43 + 3))]
    assert "".join(bench.texts(TASK)) == publication.text == "".join(f"{number} " for number in range(300))
    assert publication.chunks == 300


async def test_merging_off_makes_each_yield_an_entry(bench: ProtocolBench) -> None:
    publication = (await staged(bench, Chunking.off())).publication
    texts = [f"<{number}>" for number in range(50)]
    for text in texts:
        publication.add_text(text)
    await soon(publication.flush())
    assert bench.texts(TASK) == texts


async def test_the_first_chunk_goes_at_once_and_later_ones_are_merged(bench: ProtocolBench) -> None:
    publication = (await staged(bench, Chunking(max_delay=60))).publication
    publication.add_text("first")
    await until(lambda: bench.texts(TASK) == ["first"])
    for number in range(100):
        publication.add_text(f" {number}")
        await asyncio.sleep(0)
    assert bench.texts(TASK) == ["first"]
    await soon(publication.flush())
    assert bench.texts(TASK) == ["first", "".join(f" {number}" for number in range(100))]
    assert publication.chunks == 2


async def test_merged_text_goes_when_its_time_has_come(bench: ProtocolBench) -> None:
    publication = (await staged(bench, Chunking(max_delay=0.05))).publication
    publication.add_text("first")
    await until(lambda: bench.texts(TASK) == ["first"])
    publication.add_text("and ")
    publication.add_text("then")
    await until(lambda: bench.texts(TASK) == ["first", "and then"])


async def test_merged_text_goes_when_enough_has_gathered(bench: ProtocolBench) -> None:
    publication = (await staged(bench, Chunking(max_delay=60, max_chars=10))).publication
    publication.add_text("first")
    await until(lambda: len(bench.texts(TASK)) == 1)
    publication.add_text("123456789")
    await asyncio.sleep(0)
    publication.add_text("0")
    await until(lambda: bench.texts(TASK) == ["first", "1234567890"])


async def test_a_status_flushes_the_text_before_it(bench: ProtocolBench) -> None:
    publication = (await staged(bench, Chunking(max_delay=60, boundary="paragraph"))).publication
    publication.add_text("one ")
    publication.add_text("two")
    publication.add_entry("type", "status", "text", "half way")
    publication.add_text("three")
    await until(lambda: len(bench.ids(TASK)) == 4)
    assert [fields.get("text") for _, fields in bench.entries(TASK)[2:]] == ["one two", "half way"]
    await soon(publication.flush())
    assert "".join(bench.texts(TASK)) == "one twothree"


async def test_what_stands_behind_the_last_boundary_comes_with_the_end(bench: ProtocolBench) -> None:
    publication = (await staged(bench, Chunking(max_delay=0, boundary="sentence"))).publication
    publication.add_text("First. Sec")
    await until(lambda: bench.texts(TASK) == ["First. "])
    await soon(publication.flush())
    assert bench.texts(TASK) == ["First. ", "Sec"]


@pytest.mark.guarantee("G3")
async def test_several_entries_of_a_flush_go_in_one_transaction(bench: ProtocolBench) -> None:
    publication = (await staged(bench)).publication
    with Monitor(bench.outside) as monitor:
        publication.add_text("alone")
        await until(lambda: len(bench.texts(TASK)) == 1)
        for number in range(20):
            publication.add_text(str(number))
        await soon(publication.flush())
        batches = written(bench, monitor.executed())
    assert [len(batch) for batch in batches] == [1, 20]


def written(bench: ProtocolBench, executed: list[Executed]) -> list[list[Executed]]:
    """XADDs to the task's stream: those between MULTI and EXEC together, others alone."""
    batches: list[list[Executed]] = []
    inside = False
    for command in executed:
        if command.name in ("MULTI", "EXEC"):
            inside = command.name == "MULTI"
            batches += [[]] if inside else []
        elif command.name == "XADD" and command.arguments[0] == bench.keys.events(TASK):
            batches[-1].append(command) if inside else batches.append([command])
    return batches


@pytest.mark.guarantee("G14")
async def test_batches_and_entries_are_bounded_in_bytes(bench: ProtocolBench) -> None:
    publication = (await staged(bench, Chunking())).publication
    text = "汉字 " * (KIB * KIB // 7)
    with Monitor(bench.outside) as monitor:
        publication.add_text(text)
        await soon(publication.flush())
        batches = written(bench, monitor.executed())
    assert "".join(bench.texts(TASK)) == text
    assert all(sum(len(part.encode()) for part in fields.values()) <= 64 * KIB for _, fields in bench.entries(TASK))
    assert len(batches) > 3
    assert all(len(batch) <= 5 for batch in batches)


@pytest.mark.guarantee("G14")
async def test_an_entry_over_the_limit_is_refused_and_nothing_of_it_is_said(bench: ProtocolBench) -> None:
    publication = (await staged(bench, event_bytes=KIB)).publication
    publication.add_text("before")
    with pytest.raises(EventTooLarge, match="status entry of 10"):
        publication.add_entry("type", "status", "text", "é" * 500)
    publication.add_entry("type", "status", "text", "é" * 400)
    await soon(publication.flush())
    assert [fields["type"] for _, fields in bench.entries(TASK)[2:]] == ["chunk", "status"]


@pytest.mark.guarantee("G14")
async def test_output_is_counted_in_bytes(bench: ProtocolBench) -> None:
    publication = (await staged(bench, output_bytes=10)).publication
    publication.add_text("汉汉汉")
    with pytest.raises(OutputTooLarge):
        publication.add_text("é")
    publication.add_text("x")
    with pytest.raises(OutputTooLarge):
        publication.add_text("x")
    await soon(publication.flush())
    assert "".join(bench.texts(TASK)) == publication.text == "汉汉汉x"


@pytest.mark.guarantee("G14")
async def test_text_that_was_kept_counts_as_output(bench: ProtocolBench) -> None:
    publication = (await staged(bench, kept="éé", output_bytes=5)).publication
    assert publication.has_text
    with pytest.raises(OutputTooLarge):
        publication.add_text("ab")
    publication.add_text("a")
    await soon(publication.flush())
    assert ("".join(bench.texts(TASK)), publication.text) == ("a", "ééa")


@pytest.mark.parametrize("why", HandedBack)
async def test_a_hand_back_is_the_last_word(bench: ProtocolBench, why: HandedBack) -> None:
    publication = (await staged(bench, Chunking(max_delay=60))).publication
    publication.add_text("said ")
    publication.add_text("so far")
    await soon(publication.hand_back(why))
    entries = bench.entries(TASK)
    assert "".join(bench.texts(TASK)) == "said so far"
    assert {name: value for name, value in entries[-1][1].items() if name != "at"} == {"type": "status", "handed_back": why.value}
