"""Fixtures of the conformance tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import redis

from skillstream_schemas.settings import Settings
from tests.router.ledger_file import LedgerFile

from .stage import Stage


@pytest.fixture
async def stage(outside: redis.Redis, settings: Settings, tmp_path: Path) -> AsyncIterator[Stage]:
    """A world for one trace."""
    async with Stage(outside, settings, LedgerFile(tmp_path / "router.db")) as opened:
        yield opened
