"""A primary, a replica and three Sentinels on loopback, all from the packaged server."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import redis

from tests.support.redis_server import RedisServer, free_port, valkey_binary

SERVICE = "broker"
_CONFIG = """port {port}
bind 127.0.0.1
dir {folder}
sentinel monitor {service} 127.0.0.1 {primary} 2
sentinel down-after-milliseconds {service} 1000
sentinel failover-timeout {service} 4000
sentinel parallel-syncs {service} 1
"""


class Trio:
    """A service that Sentinels watch; `url` names the Sentinels."""

    def __init__(self, primary: RedisServer, replica: RedisServer, sentinel_ports: list[int]) -> None:
        self.primary, self.replica = primary, replica
        self.sentinel_ports = sentinel_ports
        hosts = ",".join(f"127.0.0.1:{port}" for port in sentinel_ports)
        self.url = f"redis+sentinel://{hosts}/{SERVICE}/0"

    def ask(self, *command: str) -> object:
        """Asks the first Sentinel."""
        with contextlib.closing(redis.Redis(port=self.sentinel_ports[0], decode_responses=True)) as sentinel:
            return sentinel.execute_command(*command)  # type: ignore[no-untyped-call]

    def primary_port(self) -> int:
        """Where the Sentinels see the primary now."""
        found = self.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
        assert isinstance(found, (list, tuple))
        return int(found[1])

    def is_ready(self) -> bool:
        """True once the replica has all and the Sentinels know it and each other."""
        flat = self.ask("SENTINEL", "MASTER", SERVICE)
        assert isinstance(flat, list)
        seen = dict(zip(flat[::2], flat[1::2], strict=True))
        with self.replica.client() as replica:
            is_synced = cast(Any, replica).info("replication")["master_link_status"] == "up"
        return is_synced and int(seen["num-other-sentinels"]) == 2 and int(seen["num-slaves"]) == 1


def until(condition: object, what: str, timeout_s: float = 20.0) -> None:
    """Waits until a condition of the servers holds."""
    assert callable(condition)
    give_up = time.monotonic() + timeout_s
    while time.monotonic() < give_up:
        with contextlib.suppress(redis.exceptions.RedisError):
            if condition():
                return
        time.sleep(0.05)
    raise AssertionError(f"not within {timeout_s} s: {what}")


@contextlib.contextmanager
def trio() -> Iterator[Trio]:
    """Starts all five processes and ends them by their ids."""
    with contextlib.ExitStack() as stack:
        primary = stack.enter_context(RedisServer(valkey_binary(), "--repl-diskless-sync-delay", "0"))
        replica = stack.enter_context(RedisServer(valkey_binary(), "--replicaof", f"127.0.0.1 {primary.port}"))
        ports = [free_port() for _ in range(3)]
        for port in ports:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="skillstream-sentinel-")))
            config = folder / "sentinel.conf"
            config.write_text(_CONFIG.format(port=port, folder=folder, service=SERVICE, primary=primary.port))
            process = subprocess.Popen(
                [valkey_binary(), str(config), "--sentinel"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
        watched = Trio(primary, replica, ports)
        until(watched.is_ready, "the Sentinels know each other and the replica")
        yield watched
