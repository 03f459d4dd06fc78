"""A server that an endless script keeps busy: it refuses everybody else until the script is ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
import redis

from tests.support.redis_server import RedisServer

from .bounds import BOUND_S

OPTIONS = ("--busy-reply-threshold", "10")
"""With these the server answers BUSY after 10 ms."""


def keep_busy(server: RedisServer) -> Callable[[], None]:
    """Runs an endless script; returns what ends it, once the server has refused others because of it."""

    def run() -> None:
        with server.client() as blocked, pytest.raises(redis.exceptions.RedisError):
            blocked.eval("while true do end", 0)

    def end() -> None:
        with server.client() as outside:
            outside.script_kill()
        thread.join(BOUND_S)

    thread = threading.Thread(target=run)
    thread.start()
    give_up = time.monotonic() + BOUND_S
    with server.client() as outside:
        while not _refuses(outside):
            assert time.monotonic() < give_up, "the server never got busy"
    return end


def _refuses(outside: redis.Redis) -> bool:
    try:
        outside.ping()
    except redis.exceptions.ResponseError as error:
        return str(error).startswith("BUSY")
    return False
