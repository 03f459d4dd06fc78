"""A task id used again after its stream's retention: the older task's row, money and text stay its own."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from skillstream_router import Router
from skillstream_schemas.settings import Settings

from .conftest import QUIET, REAPING
from .eventually import eventually
from .feed import NOW_MS, Feed
from .ledger_file import LedgerFile

LATER_MS = NOW_MS + 60_000
TABLES = ("tasks", "messages", "transfers", "postings")
ANOTHER: list[dict[str, Any]] = [
    {"payer": "beta", "message": "ours", "context_id": "side"},
    {"payer": "acme", "context_id": "chat"},  # the same order once more
]


@pytest.fixture
async def before(router_settings: Settings, feed: Feed, ledger_file: LedgerFile, outside: Any) -> dict[str, list[Any]]:
    """The database behind a task of acme's, whose stream is gone."""
    feed.ended("t", payer="acme", price_micros=50_000, context_id="chat", text="acme's poem")
    async with Router(router_settings, pace=QUIET):
        await eventually(lambda: feed.rings_left() == 0, "all rings are gone")
    outside.delete(feed.keys.events("t"))
    return content(ledger_file)


def content(ledger_file: LedgerFile) -> dict[str, list[Any]]:
    return {table: ledger_file.rows(f"SELECT * FROM {table}") for table in TABLES}


@pytest.mark.guarantee("G6", "G7")
@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("request_again", ANOTHER)
async def test_a_newer_submission_is_ended_at_once_and_gets_nothing_of_the_older_task(
    router_settings: Settings,
    feed: Feed,
    ledger_file: LedgerFile,
    before: dict[str, list[Any]],
    request_again: dict[str, Any],
    opened: bool,
) -> None:
    feed.submitted("t", at=LATER_MS, **request_again)
    feed.job("t")
    if opened:
        feed.opened("t")
        feed.entry("t", "1-2", {"type": "chunk", "text": "so far", "at": LATER_MS})
    async with Router(router_settings, pace=QUIET):
        await eventually(lambda: feed.stream("t")[-1][1]["type"] == "final", "the stream is ended")
        await eventually(lambda: not feed.is_queued("t"), "its job is settled")
        await eventually(lambda: feed.rings_left() == 0, "all rings are gone")
    final = feed.stream("t")[-1][1]
    assert (final["state"], final["error"], final["text"]) == ("failed", "task_id_taken", "so far" if opened else "")
    assert content(ledger_file) == before


@pytest.mark.guarantee("G7")
@pytest.mark.parametrize("request_again", ANOTHER)
async def test_one_that_ran_to_its_end_is_neither_recorded_nor_charged_but_told(
    router_settings: Settings,
    feed: Feed,
    ledger_file: LedgerFile,
    before: dict[str, list[Any]],
    request_again: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    feed.ended("t", at=LATER_MS, price_micros=50_000, text="another poem", **request_again)
    feed.job("t")
    with caplog.at_level(logging.ERROR):
        async with Router(router_settings, pace=REAPING):
            await eventually(lambda: not feed.is_queued("t"), "its job is settled")
            await eventually(lambda: feed.rings_left() == 0, "all rings are gone")
    assert [record.getMessage()[:22] for record in caplog.records] == ["task_id_taken: task t "] * len(caplog.records)
    assert caplog.records
    assert feed.stream("t")[-1][1]["text"] == "another poem"
    assert content(ledger_file) == before


@pytest.mark.guarantee("G7")
async def test_an_open_task_whose_id_went_to_another_order_is_not_changed_by_it_and_ends_as_lost(
    router_settings: Settings, feed: Feed, ledger_file: LedgerFile, outside: Any
) -> None:
    feed.submitted("t", payer="acme", price_micros=50_000)
    feed.opened("t")
    async with Router(router_settings, pace=QUIET):
        await eventually(lambda: feed.rings_left() == 0, "all rings are gone")
    outside.delete(feed.keys.events("t"))
    feed.submitted("t", at=LATER_MS, payer="beta", price_micros=50_000)
    feed.opened("t", 2)
    async with Router(router_settings, pace=REAPING):
        await eventually(lambda: feed.stream("t")[-1][1].get("error") == "task_id_taken", "the newer one is ended")
        await eventually(lambda: feed.rings_left() == 0, "all rings are gone")
        row = ledger_file.task("t")
        assert (row["state"], row["payer"], row["last_event_id"]) == ("working", "acme", "1-1")
        outside.delete(feed.keys.events("t"))
        await eventually(lambda: ledger_file.state("t") == "failed", "the older one is ended")
    row = ledger_file.task("t")
    assert (row["error"], row["payer"], row["submitted_at"]) == ("stream_lost", "acme", NOW_MS)
    assert feed.stream("t")[0][1]["at"] == str(NOW_MS)
    assert ledger_file.rows("SELECT * FROM transfers") == []


@pytest.mark.guarantee("G1")
async def test_an_open_task_submitted_again_after_its_stream_was_lost_goes_on(
    router_settings: Settings, feed: Feed, ledger_file: LedgerFile, outside: Any
) -> None:
    feed.submitted("t", payer="acme", price_micros=50_000)
    async with Router(router_settings, pace=QUIET):
        await eventually(lambda: feed.rings_left() == 0, "all rings are gone")
    outside.delete(feed.keys.events("t"))
    feed.ended("t", at=NOW_MS + 1, payer="acme", price_micros=50_000)
    async with Router(router_settings, pace=QUIET):
        await eventually(lambda: ledger_file.state("t") == "completed", "the task is completed")
    assert ledger_file.balances()["payer:acme"] == -50_000
