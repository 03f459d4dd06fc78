"""The chaos run in short: workers, routers, broker and wires fail for some seconds, then every task is checked.

Tasks and faults are the same each time; `CHAOS_SEED` makes others, and `make chaos` does so for ten minutes.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .run import run

_SECONDS = 45.0
_SEED = 20_240_229


@pytest.mark.timeout(150)
@pytest.mark.guarantee("G1", "G2", "G3", "G4", "G5", "G6", "G7", "G8", "G9", "G15", "G16")
async def test_every_guarantee_holds_through_random_faults(tmp_path: Path) -> None:
    seed = int(os.environ.get("CHAOS_SEED") or _SEED)
    print(f"seed: {seed}")
    outcome = await run(seed, _SECONDS, tmp_path)
    told = "\n".join(outcome.lines())
    print(told)
    assert not outcome.violations, told
    assert outcome.counts["tasks"] > 100, told
    assert sum(count for name, count in outcome.counts.items() if name.startswith("kills")) > 3, told
    assert outcome.report.retries > 0, told
