"""What must not be left on the broker after a test."""

from __future__ import annotations

import redis

PERMANENT = ("arq:queue:", "skillstream:inbox:", "skillstream:agents", "skillstream:shards")
"""Keys that have no TTL by contract (guarantee G15)."""


def check_no_leaks(client: redis.Redis) -> None:
    """Fails for a key without TTL outside the permanent ones, and for jobs or leases that nobody ended."""
    keys = list(client.scan_iter(count=1000))
    forever = [key for key in keys if client.ttl(key) == -1 and not key.startswith(PERMANENT)]
    assert not forever, f"keys without TTL: {sorted(forever)[:10]}"
    leased = [key for key in keys if key.startswith("arq:in-progress:")]
    assert not leased, f"leases left: {leased[:10]}"
    queued = {key: client.zrange(key, 0, -1) for key in keys if key.startswith("arq:queue:") and client.type(key) == "zset"}
    assert not queued, f"jobs left on queues: {queued}"
