"""Whatever order the steps of the protocol come in: the invariants hold after each of them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator

import pytest
import redis

from skillstream_schemas.settings import Settings
from tests.support.protocol_bench import ProtocolBench
from tests.support.protocol_walk import ProtocolWalk

SEED = 7_919
WALKS = 500
STEPS = 30


@pytest.fixture
async def bench(outside: redis.Redis, settings: Settings) -> AsyncIterator[ProtocolBench]:
    async with ProtocolBench(outside, settings.changed(lease_s=600)) as opened:  # leases end by a step, never by themselves
        yield opened


@pytest.mark.guarantee("G1", "G2", "G3", "G4", "G6", "G8")
async def test_random_walks_keep_every_invariant(bench: ProtocolBench) -> None:
    brokers = [await bench.broker("w1"), await bench.broker("w2")]
    taken: Counter[str] = Counter()
    for seed in range(SEED, SEED + WALKS):
        walk = ProtocolWalk(bench, brokers, f"walk-{seed}", random.Random(seed))
        try:
            for _ in range(STEPS):
                await walk.step()
            await walk.end()
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}; steps: {' '.join(walk.history)}") from error
        taken.update(walk.history)
        bench.outside.delete(*(bench.keys.inbox(shard) for shard in range(bench.settings.shards)))
    print(f"seeds {SEED} to {SEED + WALKS - 1}: {dict(taken)}")
