"""`python -m benchmarks [NAME…]`: measures, prints ratios, keeps results, and writes docs/performance.md and its picture.

`--quick` runs small forms against the ceilings alone and compares with benchmarks/reference.json: exit code 1 where a
ratio fell by a fifth or more. `--keep-reference` writes that file from such a run instead.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType

from . import (
    contention,
    e2e,
    following,
    idle,
    latency,
    memory,
    publishing,
    routing,
    submission,
    throughput,
    tokens,
)
from .environments import Environments
from .machine import described
from .measuring import Lab, Report
from .picture import PICTURE, draw
from .processes import ProcessEnded
from .results import Reference, Results
from .server import running_server
from .table import PAGE, write_table

BENCHMARKS: dict[str, Callable[[Lab], Report]] = {
    "throughput": throughput.measure,
    "contention": contention.measure,
    "publishing": publishing.measure,
    "tokens": tokens.measure,
    "latency": latency.measure,
    "submission": submission.measure,
    "routing": routing.measure,
    "following": following.measure,
    "e2e": e2e.measure,
    "idle": idle.measure,
    "memory": memory.measure,
}
QUICK = ("throughput", "publishing", "tokens", "submission", "routing", "idle")
ROUNDS, QUICK_ROUNDS = 5, 3


def main() -> int:
    """Runs what the command line names; returns the exit code."""
    options = _options()
    signal.signal(signal.SIGINT, _interrupt)
    signal.signal(signal.SIGTERM, _interrupt)
    rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    lab = Lab(rounds, options.scale, options.quick, Environments(_say), _say)
    names = options.names or list(QUICK if options.quick else BENCHMARKS)
    with running_server() as server:
        about = server.client.info("server")
    machine = described(f"Valkey {about['valkey_version']}" if "valkey_version" in about else f"Redis {about['redis_version']}")
    begun_s, reports, failed = time.monotonic(), [], []
    for name in names:
        _say(f"{name}: {(sys.modules[BENCHMARKS[name].__module__].__doc__ or '').splitlines()[0]}")
        try:
            report = BENCHMARKS[name](lab)
        except (ProcessEnded, RuntimeError) as error:
            failed.append(f"{name}: {error}")
            _say(f"  {name} has no result: {error}")
            continue
        reports.append(report)
        _print(report)
        if not options.quick:
            is_whole = options.scale >= 1 and rounds >= ROUNDS
            Results().add(report, machine, command=f"python -m benchmarks {' '.join(options.names)}".strip(), is_whole=is_whole)
    _say(f"{time.monotonic() - begun_s:.0f} s")
    if options.quick:
        return _judge(reports, machine, keep=options.keep_reference) or bool(failed)
    if options.scale >= 1 and rounds >= ROUNDS:
        _publish()
    else:
        _say("a small run: docs/performance.md stays as it is")
    return bool(failed)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure this project beside its peers.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which benchmarks: {', '.join(BENCHMARKS)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="small forms without peers, compared with reference.json")
    parser.add_argument("--keep-reference", action="store_true", help="with --quick: write reference.json")
    parser.add_argument(
        "--rounds", type=int, default=0, help=f"rounds of each benchmark (default {ROUNDS}, quick {QUICK_ROUNDS})"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="share of the sizes, to try the benchmarks themselves")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in BENCHMARKS]:
        parser.error(f"there is no benchmark {', '.join(unknown)}")
    return options


def _print(report: Report) -> None:
    for ratio in report.ratios:
        against = f" / {ratio.against}" if ratio.against else ""
        verdict = ""
        if ratio.target is not None:
            verdict = f"   target {ratio.target}: {'met' if ratio.target.is_met(ratio.median) else 'MISSED'}"
        _say(f"  = {ratio.name}{against}: {ratio}{verdict}")


def _judge(reports: list[Report], machine: dict[str, object], *, keep: bool) -> int:
    if keep:
        Reference().keep(reports, machine)
        _say("kept in benchmarks/reference.json")
        return 0
    fallen = Reference().fallen(reports)
    if fallen is None:
        _say("nothing to compare with: `make bench-quick KEEP=--keep-reference` keeps this machine's ratios")
        return 0
    for sentence in fallen:
        _say(f"fell: {sentence}")
    if not fallen:
        _say("no ratio fell by a fifth or more")
    return int(bool(fallen))


def _publish() -> None:
    latest = Results().latest(BENCHMARKS)
    write_table(latest)
    _say(f"written: {PAGE.name}")
    try:
        if draw(latest):
            _say(f"drawn: {PICTURE.name}")
    except ImportError:
        _say("no picture: matplotlib is not installed (pip install 'skillstream[bench]')")


def _interrupt(signum: int, frame: FrameType | None) -> None:
    # once: the ending of servers and workers is not to be interrupted by a second one
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted: everything that was started has ended")
