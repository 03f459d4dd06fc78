"""Fixtures of the router's tests: a database file, a feed of streams and rings, a clock that tests move."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import redis

from skillstream.clock import Clock
from skillstream_router.app import RouterPace
from skillstream_router.inbox import ReadingPace
from skillstream_router.reaper import ReapingPace
from skillstream_router.reconciler import ReconcilingPace
from skillstream_schemas.settings import Settings

from .feed import Feed
from .ledger_file import LedgerFile

QUIET = RouterPace(ReadingPace(block_s=0.2, take_over_s=0.2), ReapingPace(period_s=3600), ReconcilingPace(period_s=3600))
"""Only rings are worked off."""
REAPING = RouterPace(ReadingPace(block_s=0.2), ReapingPace(period_s=0.05, pause_s=0), ReconcilingPace(period_s=3600))
RECONCILING = RouterPace(ReadingPace(block_s=0.2), ReapingPace(period_s=3600), ReconcilingPace(period_s=0.05, pause_s=0))


class MovedClock(Clock):
    """The machine's clock, `ahead_ms` ahead."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self.ahead_ms


@pytest.fixture
def ledger_file(tmp_path: Path) -> LedgerFile:
    """The database file that the router under test writes."""
    return LedgerFile(tmp_path / "router.db")


@pytest.fixture
def router_settings(settings: Settings, ledger_file: LedgerFile) -> Settings:
    """Settings of a router on the test's server and file."""
    return settings.changed(database_url=ledger_file.url)


@pytest.fixture
def feed(outside: redis.Redis, router_settings: Settings) -> Feed:
    """Writes streams, rings and jobs."""
    return Feed(outside, router_settings.keys)


@pytest.fixture
def clock() -> MovedClock:
    """A clock that the test moves."""
    return MovedClock()
