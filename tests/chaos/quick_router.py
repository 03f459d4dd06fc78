"""A router process that looks at everything more often than the command's, so that a run need not wait for minutes.

`python -m tests.chaos.quick_router REDIS_URL DATABASE_URL`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys

from skillstream_router import Router
from skillstream_router.app import RouterPace
from skillstream_router.inbox import ReadingPace
from skillstream_router.reaper import ReapingPace
from skillstream_router.reconciler import ReconcilingPace
from skillstream_schemas.errors import BrokerUnavailable, DatabaseUnavailable
from skillstream_schemas.settings import Settings

_PACE = RouterPace(
    reading=ReadingPace(block_s=1.0, take_over_s=4.0),
    reaping=ReapingPace(period_s=2.0),
    reconciling=ReconcilingPace(period_s=3.0),
)
UNREACHABLE = 4


async def run(redis_url: str, database_url: str) -> int:
    """Runs until SIGTERM; the exit codes are those of the command."""
    router = Router(Settings.from_env(os.environ, redis_url=redis_url, database_url=database_url), pace=_PACE)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, router.stop)
    announcing = asyncio.create_task(_announce(router))
    try:
        await router.run()
    except (BrokerUnavailable, DatabaseUnavailable) as error:
        print(error, file=sys.stderr)
        return UNREACHABLE
    finally:
        announcing.cancel()
    return 0


async def _announce(router: Router) -> None:
    await router.until_reading()
    print(f"router {router.name} is ready", flush=True)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    raise SystemExit(asyncio.run(run(*sys.argv[1:])))
