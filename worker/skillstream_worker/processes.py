"""Several worker processes under one command."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping, Sequence


async def run_processes(command: Sequence[str], count: int, env: Mapping[str, str]) -> int:
    """Runs `count` processes of a command in this environment until all end; signals are passed on to each.

    Returns the highest exit code. One that ends by itself is not started again: what watches this process decides.
    Their standard input is a pipe that nothing is written to: it closes when this process dies.
    """
    processes = [
        await asyncio.create_subprocess_exec(*command, env=env, start_new_session=True, stdin=asyncio.subprocess.PIPE)
        for _ in range(count)
    ]
    loop = asyncio.get_running_loop()

    def pass_on(signum: signal.Signals) -> None:
        for process in processes:
            if process.returncode is None:
                process.send_signal(signum)

    for signum in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signum, pass_on, signum)
    codes = await asyncio.gather(*(process.wait() for process in processes))
    return max(abs(code) for code in codes)
