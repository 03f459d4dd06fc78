"""What an attempt may not write over (rule P5): a newer attempt, a stream that is gone, a broker that went back."""

from __future__ import annotations

import pytest

from skillstream_schemas.errors import Unpublishable
from skillstream_schemas.event import HandedBack
from skillstream_worker.answers import Loss
from tests.client.bounds import soon, until
from tests.support.cutting_proxy import CuttingProxy
from tests.support.protocol_bench import FINAL_FIELDS, TASK, ProtocolBench, is_dense, refusals, staged


@pytest.mark.guarantee("G4")
@pytest.mark.parametrize("count", [1, 5])
async def test_an_attempt_is_fenced_once_a_newer_one_has_opened(bench: ProtocolBench, count: int) -> None:
    stage = await staged(bench)
    publication = stage.publication
    publication.add_text("kept")
    await soon(publication.flush())
    bench.lapse(TASK)
    await bench.opened_by(await bench.claimed(TASK, "w2"))
    before = bench.entries(TASK)
    for number in range(count):
        publication.add_text(str(number))
    with pytest.raises(Unpublishable, match="a newer attempt has opened"):
        await soon(publication.flush())
    assert publication.loss is Loss.FENCED
    publication.add_text("more")
    with pytest.raises(Unpublishable):
        await soon(publication.flush())
    with pytest.raises(Unpublishable):
        await soon(publication.hand_back(HandedBack.DRAIN))
    with pytest.raises(Unpublishable):
        await soon(publication.finish(FINAL_FIELDS))
    assert stage.losses == [Loss.FENCED]
    assert bench.entries(TASK) == before


@pytest.mark.parametrize("count", [1, 5])
async def test_a_stream_that_is_gone_is_not_made_again(bench: ProtocolBench, count: int) -> None:
    stage = await staged(bench)
    bench.outside.delete(bench.keys.events(TASK))
    for number in range(count):
        stage.publication.add_text(str(number))
    with pytest.raises(Unpublishable, match="gone"):
        await soon(stage.publication.flush())
    assert stage.losses == [Loss.GONE]
    assert bench.entries(TASK) == []


def rebuilt(bench: ProtocolBench, claim: str, *texts: str) -> None:
    """The stream as another server has it after a failover."""
    entries = bench.entries(TASK)
    bench.outside.delete(bench.keys.events(TASK))
    bench.add(TASK, "0-1", **entries[0][1])
    bench.add(TASK, "1-1", **(entries[1][1] | {"claim": claim}))
    for seq, text in enumerate(texts, 2):
        bench.add(TASK, f"1-{seq}", type="chunk", text=text)
    bench.outside.expire(bench.keys.events(TASK), 60)


@pytest.mark.parametrize("texts", [["a", "b", "c"], ["a", "b", "c", "d"]])
async def test_an_opening_that_is_another_s_means_that_the_broker_went_back(bench: ProtocolBench, texts: list[str]) -> None:
    stage = await staged(bench)
    for text in "abc":
        stage.publication.add_text(text)
    await soon(stage.publication.flush())
    rebuilt(bench, "1", *texts, "of another")
    before = bench.entries(TASK)
    stage.publication.add_text("x")
    with pytest.raises(Unpublishable, match="lost entries"):
        await soon(stage.publication.flush())
    assert stage.losses == [Loss.WENT_BACK]
    assert bench.entries(TASK) == before


@pytest.mark.guarantee("G3")
async def test_entries_that_the_broker_lost_are_no_reason_for_a_hole(bench: ProtocolBench) -> None:
    stage = await staged(bench)
    claim = bench.entries(TASK)[1][1]["claim"]
    for text in "abc":
        stage.publication.add_text(text)
    await soon(stage.publication.flush())
    rebuilt(bench, claim, "a")
    before = refusals(bench.outside, "NOREPLICAS")
    bench.outside.config_set("min-replicas-to-write", 1)
    try:
        stage.publication.add_text("d")
        await until(lambda: refusals(bench.outside, "NOREPLICAS") > before)
    finally:
        bench.outside.config_set("min-replicas-to-write", 0)
    with pytest.raises(Unpublishable, match="lost entries"):
        await soon(stage.publication.flush())
    assert stage.losses == [Loss.WENT_BACK]
    assert bench.ids(TASK) == ["0-1", "1-1", "1-2"]


@pytest.mark.guarantee("G3")
@pytest.mark.parametrize("claim", ["mine", "another's"])
async def test_an_attempt_that_was_silent_when_its_connection_broke_looks_before_it_writes(
    bench: ProtocolBench, proxy: CuttingProxy, claim: str
) -> None:
    """The server behind the next connection may be another one, that lost entries (rule P17)."""
    stage = await staged(bench, settings=bench.settings.changed(redis_url=proxy.url))
    mine = bench.entries(TASK)[1][1]["claim"]
    for text in "abc":
        stage.publication.add_text(text)
    await soon(stage.publication.flush())
    rebuilt(bench, *((mine, "a") if claim == "mine" else ("1", "x", "y", "z")))
    before = bench.entries(TASK)
    proxy.drop()
    await (await bench.broker("w1")).server_claim()  # the connection was made again
    stage.publication.add_text("d")
    with pytest.raises(Unpublishable, match="lost entries"):
        await soon(stage.publication.flush())
    assert stage.losses == [Loss.WENT_BACK]
    assert bench.entries(TASK) == before


@pytest.mark.guarantee("G3")
async def test_an_attempt_that_was_silent_when_its_connection_broke_goes_on(bench: ProtocolBench, proxy: CuttingProxy) -> None:
    stage = await staged(bench, settings=bench.settings.changed(redis_url=proxy.url))
    for text in "abc":
        stage.publication.add_text(text)
        await soon(stage.publication.flush())
        proxy.drop()
    assert await soon(stage.publication.finish(FINAL_FIELDS))
    assert bench.texts(TASK) == ["a", "b", "c"]
    assert is_dense(bench.ids(TASK))
    assert stage.losses == []
