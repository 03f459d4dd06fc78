"""A router that is told to stop ends soon, whether or not its broker is there."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from skillstream_router import Router
from skillstream_router.projection import Ring
from tests.client.bounds import until
from tests.conftest import make_settings
from tests.support.redis_server import RedisServer, valkey_binary

from .conftest import QUIET
from .ledger_file import LedgerFile


@pytest.mark.parametrize("frozen", [False, True], ids=["gone", "frozen"])
async def test_a_router_without_a_broker_ends_within_ten_seconds(tmp_path: Path, frozen: bool) -> None:
    with RedisServer(valkey_binary()) as server:
        settings = make_settings(
            server.url, database_url=LedgerFile(tmp_path / "router.db").url, http="127.0.0.1:0", patience_s=30
        )
        router = Router(settings, pace=QUIET)
        await router.start()
        await router.until_reading()
        server.pause() if frozen else server.stop()
        try:
            for number in range(3):  # two under way, one in the queue
                await router._rings.put([Ring(0, f"1-{number + 1}", f"t{number}", "final")])
            await until(lambda: router._rings.qsize() <= 1)
            started = time.monotonic()
            await router.__aexit__()
            assert time.monotonic() - started < 9
        finally:
            if frozen:
                server.resume()
