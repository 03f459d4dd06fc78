"""From a request over HTTP to tokens at the client, worker and gateway in processes of their own; beside the usual recipe."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import httpx

from .agents import TOKEN
from .measuring import Lab, Report, Target, quantile
from .processes import ProcessGroups, apart
from .server import Server, running_server

OURS, APART, RECIPE = "skillstream", "skillstream, merging off", "FastAPI + arq + pub/sub, by hand"
P50, P99 = "first token p50", "first token p99"
RATE, RATE_MANY, WORST = "tokens/s", "tokens/s, 50 runs at once", "worst first token of 50 runs"
IDLE_S = 0.1
START_S = 20.0
AT_ONCE, SHORT, MIDDLE = 50, 20, 400


def measure(lab: Lab) -> Report:
    """Starts each contender anew for each round; the client, one process, shares the machine with all of them."""
    sizes = {"runs": lab.size(100, 20), "tokens": lab.size(10_000, 2_000)}
    with running_server() as server:
        measures = {
            OURS: partial(_ours, server, "talk", **sizes),
            APART: partial(_ours, server, "talk_apart", **sizes),
            RECIPE: partial(_recipe, server, **sizes),
        }
        samples = lab.alternate(measures, required=[OURS, APART])
    at_least, at_most = Target(1.5), partial(Target, is_ceiling=True)
    return Report(
        "over_http",
        (
            *samples.figures(P50, "ms"), *samples.figures(P99, "ms"), *samples.figures(RATE, "tokens/s"),
            *samples.figures(RATE_MANY, "tokens/s"), *samples.figures(WORST, "ms"),
        ),
        (
            *samples.value("HTTP request → first token, p50", OURS, P50, unit="ms", target=at_most(6)),
            *samples.value("HTTP request → first token, p99", OURS, P99, unit="ms", target=at_most(10)),
            *samples.ratio("HTTP request → first token, p50", OURS, RECIPE, figure=P50, better="lower"),
            *samples.ratio("tokens/s over HTTP, merging off", APART, RECIPE, figure=RATE, target=at_least),
            *samples.ratio("tokens/s over HTTP, merging on", OURS, RECIPE, figure=RATE, target=Target(10)),
            *samples.ratio("tokens/s over HTTP, 50 runs at once", OURS, RECIPE, figure=RATE_MANY, target=at_least),
            *samples.value("worst first token of 50 runs at once", OURS, WORST, unit="ms", target=at_most(150)),
        ),
        samples.notes,
    )  # fmt: skip


def _ours(server: Server, skill: str, runs: int, tokens: int) -> Mapping[str, float]:
    server.client.flushall()
    folder, port = Path(tempfile.mkdtemp(prefix="skillstream-bench-")), _free_port()
    variables = {"SKILLSTREAM_REDIS_URL": server.url, "SKILLSTREAM_DATABASE_URL": f"sqlite:///{folder}/router.db"}
    try:
        with ProcessGroups() as processes:
            for command in (["worker", "benchmarks.agents:agent"], ["router", "--http", f"127.0.0.1:{port}"]):
                processes.start([sys.executable, "-m", "skillstream", *command], folder / "log", variables)
            found: dict[str, float] = apart(ask, loop="asyncio", port=port, skill=skill, runs=runs, tokens=tokens)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return found


def _recipe(server: Server, runs: int, tokens: int) -> Mapping[str, float]:
    server.client.flushall()
    folder, port = Path(tempfile.mkdtemp(prefix="skillstream-bench-")), _free_port()
    try:
        with ProcessGroups() as processes:
            for command in (["worker"], ["api", str(port)]):
                program = [sys.executable, "-m", "benchmarks.programs.http_recipe", *command]
                processes.start(program, folder / "log", {"BENCH_REDIS_PORT": str(server.port)})
            found: dict[str, float] = apart(ask, loop="asyncio", port=port, skill="", runs=runs, tokens=tokens)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return found


async def ask(port: int, skill: str, runs: int, tokens: int) -> dict[str, float]:
    """All figures of one contender, milliseconds and tokens a second; the recipe where no skill is named."""
    limits = httpx.Limits(max_connections=2 * AT_ONCE, max_keepalive_connections=2 * AT_ONCE)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60, limits=limits, trust_env=False) as http:
        await _until_it_runs(http, skill)
        for _ in range(3):
            await _run(http, skill, SHORT)
        first_ms = []
        for _ in range(runs):
            await asyncio.sleep(random.uniform(0, IDLE_S))
            first_ms.append((await _run(http, skill, SHORT))[0])
        begun_s = time.perf_counter()
        await _run(http, skill, tokens)
        rate = tokens / (time.perf_counter() - begun_s)
        begun_s = time.perf_counter()
        many = await asyncio.gather(*(_run(http, skill, MIDDLE) for _ in range(AT_ONCE)))
        rate_many = AT_ONCE * MIDDLE / (time.perf_counter() - begun_s)
    worst_ms = max(first for first, _ in many)
    return {P50: quantile(first_ms, 0.5), P99: quantile(first_ms, 0.99), RATE: rate, RATE_MANY: rate_many, WORST: worst_ms}


async def _run(http: httpx.AsyncClient, skill: str, tokens: int) -> tuple[float, int]:
    """Milliseconds to the first token, and how many came; raises RuntimeError where that is not all of them."""
    sent_s, first_s, came = time.perf_counter(), 0.0, 0
    order = {"agent": "bench", "skill": skill, "message": str(tokens), "stream": True}
    request = http.stream("POST", "/v1/tasks", json=order) if skill else http.stream("POST", "/stream", params={"tokens": tokens})
    async with request as response:
        async for line in response.aiter_lines():
            if not line.startswith("data: "):
                continue
            text = _text(line) if skill else line
            came += text.count(TOKEN)
            if came and not first_s:
                first_s = time.perf_counter()
    if came != tokens:
        raise RuntimeError(f"{came} of {tokens} tokens came")
    return 1000 * (first_s - sent_s), came


def _text(line: str) -> str:
    event = json.loads(line[6:])
    return str(event["text"]) if event["type"] == "chunk" else ""


async def _until_it_runs(http: httpx.AsyncClient, skill: str) -> None:
    give_up_s = time.monotonic() + START_S
    while True:
        try:
            answer = await http.get("/v1/agents" if skill else "/openapi.json")
            if not skill or answer.json()["agents"]:
                return
        except httpx.TransportError:
            pass
        if time.monotonic() > give_up_s:
            raise RuntimeError(f"nothing answers on {http.base_url}")
        await asyncio.sleep(0.05)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
