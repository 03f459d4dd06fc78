"""What the HTTP client measures, in a process of its own: first tokens, tokens a second, and what a break costs it."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager

import httpx

from .measuring import quantile
from .tellings import DIALECTS, RunRefused, Telling

P50, P99 = "submit → first token, p50", "submit → first token, p99"
RATE, RATE_SIDE, WORST_FIRST = "tokens/s, one run", "tokens/s, runs side by side", "worst first token, runs side by side"
LOST, DOUBLED, RESENT = "tokens lost", "tokens doubled", "tokens sent again"
NEWS, FINALS = "kill -9 → first sign at the client", "finals"
IDLE_S = 0.5
"""Between two runs the client idles at random up to so long, so that no poller is met at one phase only."""
_SHORT_RUN, _WARM_UPS = 20, 3
_READY_S, _RUN_S, _BACK_S = 60.0, 120.0, 10.0
_AGAIN_S = 0.1
_COME_BACK_S = 0.5
_FAILURES = (httpx.HTTPError, RunRefused, TimeoutError)

Begin = Callable[[int, float], Telling]


async def ready(url: str, dialect: str, variant: str) -> dict[str, float]:
    """Returns once some short runs went through."""
    async with _client(url, dialect, variant) as begin, asyncio.timeout(_READY_S):
        for _ in range(_WARM_UPS):
            await _until_it_runs(begin)
    return {}


async def first_tokens(url: str, dialect: str, variant: str, runs: int) -> dict[str, float]:
    """Short runs one by one, from before the request to the first token."""
    ms: list[float] = []
    async with _client(url, dialect, variant) as begin:
        await _until_it_runs(begin)
        for _ in range(runs):
            await asyncio.sleep(random.uniform(0, IDLE_S))
            first_s, _ = await _run(begin(_SHORT_RUN, 0.0))
            ms.append(1000 * first_s)
    return {P50: quantile(ms, 0.5), P99: quantile(ms, 0.99)}


async def one_run(url: str, dialect: str, variant: str, tokens: int) -> dict[str, float]:
    """Tokens a second of one run, from before the request to its end."""
    async with _client(url, dialect, variant) as begin:
        await _until_it_runs(begin)
        _, seconds = await _run(begin(tokens, 0.0))
    return {RATE: tokens / seconds}


async def side_by_side(url: str, dialect: str, variant: str, runs: int, tokens: int) -> dict[str, float]:
    """Many runs begun at once: tokens a second of all, and the longest wait for a first token."""
    async with _client(url, dialect, variant) as begin:
        await _until_it_runs(begin)
        begun_s = time.perf_counter()
        found = await asyncio.gather(*(_run(begin(tokens, 0.0)) for _ in range(runs)))
        seconds = time.perf_counter() - begun_s
    return {RATE_SIDE: runs * tokens / seconds, WORST_FIRST: 1000 * max(first_s for first_s, _ in found)}


async def dropped(
    url: str, dialect: str, variant: str, tokens: int, delay_s: float, after: int, away_s: float
) -> dict[str, float]:
    """The client leaves after so many tokens and comes back; what it lacks and has twice once the run is over."""
    async with _client(url, dialect, variant) as begin:
        await _until_it_runs(begin)
        telling = begin(tokens, delay_s)
        async with aclosing(telling.begin()) as pieces:
            async for _ in pieces:
                if len(telling.numbers) >= after:
                    break
        held, again = set(telling.numbers), 0
        await asyncio.sleep(away_s)
        try:
            async with asyncio.timeout(_BACK_S + tokens * delay_s), aclosing(telling.come_back()) as pieces:
                async for piece in pieces:
                    again += len(held.intersection(telling.numbers_of(piece)))
        except _FAILURES:
            pass  # what it holds now is what counts
    return {LOST: telling.lost, DOUBLED: telling.doubled, RESENT: again + telling.restored}


async def killed(
    url: str, dialect: str, variant: str, tokens: int, delay_s: float, after: int, watch_s: float, pid: int
) -> dict[str, float]:
    """Kills the process that runs the task after so many tokens and watches; a client whose answer breaks comes back.

    Its first sign is the first event or token after the kill; missing where none came.
    """
    async with _client(url, dialect, variant) as begin:
        await _until_it_runs(begin)
        telling, killed_s, news_s = begin(tokens, delay_s), 0.0, 0.0
        pieces = telling.begin()
        try:
            async with asyncio.timeout(watch_s):
                while not telling.finals:
                    try:
                        async with aclosing(pieces) as following:
                            async for _ in following:
                                if not killed_s and len(telling.numbers) >= after:
                                    os.kill(pid, signal.SIGKILL)
                                    killed_s = time.perf_counter()
                                elif killed_s and not news_s:
                                    news_s = telling.told_s or time.perf_counter()
                    except (httpx.HTTPError, RunRefused):
                        await asyncio.sleep(_COME_BACK_S)
                    pieces = telling.come_back()
        except TimeoutError:
            pass
    found = {FINALS: float(telling.finals), LOST: telling.lost, DOUBLED: telling.doubled}
    return {**found, NEWS: news_s - killed_s} if news_s else found


@asynccontextmanager
async def _client(url: str, dialect: str, variant: str) -> AsyncIterator[Begin]:
    limits = httpx.Limits(max_connections=200)
    async with httpx.AsyncClient(base_url=url, timeout=_RUN_S, limits=limits) as http:
        yield lambda count, delay_s: DIALECTS[dialect](http, count, delay_s, variant)


async def _run(telling: Telling) -> tuple[float, float]:
    """Seconds to the first token and to the end; raises RunRefused where a token is missing, doubled or out of order."""
    begun_s, first_s = time.perf_counter(), 0.0
    async for _ in telling.begin():
        first_s = first_s or time.perf_counter() - begun_s
    seconds = time.perf_counter() - begun_s
    if telling.numbers != list(range(telling.count)):
        raise RunRefused(f"{telling.lost} of {telling.count} tokens were lost, {telling.doubled} doubled, or out of order")
    return first_s, seconds


async def _until_it_runs(begin: Begin) -> None:
    """A short run before the clock starts: connections are open and the server is warm."""
    while True:
        try:
            await _run(begin(_SHORT_RUN, 0.0))
        except _FAILURES:
            await asyncio.sleep(_AGAIN_S)
        else:
            return
