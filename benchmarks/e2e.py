"""Submitted over HTTP, run by a separate worker, followed as server-sent events: first token, tokens a second, breaks."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from .environments import Environments, NotInstalled
from .listening import (
    DOUBLED,
    FINALS,
    LOST,
    NEWS,
    P50,
    P99,
    RATE,
    RATE_SIDE,
    RESENT,
    WORST_FIRST,
    dropped,
    first_tokens,
    killed,
    one_run,
    side_by_side,
)  # fmt: skip
from .measuring import Figure, Lab, Ratio, Report, Samples, Target
from .processes import ProcessEnded
from .server import Server, running_server
from .stacks import A2A, LANGGRAPH, OURS, RECIPE, RECIPE_AS_IT_SHIPS, RESUMING, UNMERGED, Stack, a_stack

LIVE, OVER = "client away for 1 s, run live", "client away for 1 s, run over"
KILLED = "worker killed"
AFTER, AWAY_S = 100, 1.0
WATCH_S, RESTART_S = 60.0, 2.0
LEASE_S = 15
"""A worker's lease as it ships."""
_FIRST_TOKENS = 50
_SIDE, _SIDE_TOKENS = 50, 400
_LIVE_TOKENS, _LIVE_DELAY_S, _OVER_TOKENS = 400, 0.005, 1_000
_KILL_TOKENS, _KILL_DELAY_S, _KILL_AFTER = 600, 0.01, 150
_LOOK_S = 0.05
_NOTHING = Target(0, is_ceiling=True)


def measure(lab: Lab) -> Report:
    """Contenders take turns, each with processes of its own; kills are measured once, all contenders at the same time."""
    whole = (OURS, UNMERGED) if lab.is_quick else (OURS, UNMERGED, RECIPE, A2A, LANGGRAPH)
    with running_server() as server:
        measures = {stack.name: partial(_streamed, stack, lab, server) for stack in whole}
        if not lab.is_quick:
            measures[RECIPE_AS_IT_SHIPS.name] = partial(_first, RECIPE_AS_IT_SHIPS, lab, server)
        samples = lab.alternate(measures, required=[OURS.name, UNMERGED.name])
    kills = Samples() if lab.is_quick else _kills(lab)
    return Report("e2e", tuple(_figures(samples, kills)), tuple(_ratios(samples, kills)), (*samples.notes, *kills.notes))


def _streamed(stack: Stack, lab: Lab, server: Server) -> Mapping[str, float]:
    breaks = {LIVE: (_LIVE_TOKENS, _LIVE_DELAY_S), OVER: (_OVER_TOKENS, 0.0)}
    with a_stack(stack, lab.environments, server) as running:
        found = dict(running.ask(one_run, tokens=lab.size(10_000, 5_000)))
        found |= running.ask(side_by_side, runs=_SIDE, tokens=lab.size(_SIDE_TOKENS, 100))
        if lab.is_quick and stack is UNMERGED:
            return found
        if not lab.is_quick:  # times alone are of the machine, and nothing compares them
            found |= running.ask(first_tokens, runs=lab.size(_FIRST_TOKENS, 0))
        for when, (tokens, delay_s) in breaks.items():
            broken = running.ask(dropped, tokens=tokens, delay_s=delay_s, after=AFTER, away_s=AWAY_S)
            found |= {f"{when}: {name}": value for name, value in broken.items()}
    return found


def _first(stack: Stack, lab: Lab, server: Server) -> Mapping[str, float]:
    with a_stack(stack, lab.environments, server) as running:
        return running.ask(first_tokens, runs=lab.size(_FIRST_TOKENS, 0))


def _kills(lab: Lab) -> Samples:
    """Paced runs that leave the cores idle: all at once, since most are watched to the end."""
    samples, stacks = Samples(), (OURS, RESUMING, RECIPE, A2A, LANGGRAPH)
    with ThreadPoolExecutor(len(stacks)) as threads:
        under_way = {stack: threads.submit(_killed, stack, lab.environments) for stack in stacks}
        for stack, future in under_way.items():
            try:
                samples.values[stack.name] = {f"{KILLED}: {name}": [value] for name, value in future.result().items()}
            except (NotInstalled, ProcessEnded) as error:
                if stack in (OURS, RESUMING):
                    raise
                samples.left_out[stack.name] = " ".join(str(error).split())[:300]
            else:
                lab.say(f"  {stack.name}: {', '.join(f'{name} {value:g}' for name, value in future.result().items())}")
    return samples


def _killed(stack: Stack, environments: Environments) -> Mapping[str, float]:
    arguments = {"tokens": _KILL_TOKENS, "delay_s": _KILL_DELAY_S, "after": _KILL_AFTER, "watch_s": WATCH_S}
    with running_server() as server, a_stack(stack, environments, server) as running, ThreadPoolExecutor(1) as thread:
        first = running.runner
        asking = thread.submit(running.ask, killed, pid=first.pid, **arguments)
        while first.poll() is None and not asking.done():
            time.sleep(_LOOK_S)
        time.sleep(RESTART_S)
        running.start_again()
        return asking.result()


def _figures(samples: Samples, kills: Samples) -> list[Figure]:
    units = {P50: "ms", P99: "ms", RATE: "tokens/s", RATE_SIDE: "tokens/s", WORST_FIRST: "ms"}
    units |= {f"{when}: {name}": "" for when in (LIVE, OVER) for name in (LOST, DOUBLED, RESENT)}
    ends = {f"{KILLED}: {NEWS}": "s", f"{KILLED}: {FINALS}": "", f"{KILLED}: {LOST}": "", f"{KILLED}: {DOUBLED}": ""}
    return [
        *(figure for name, unit in units.items() for figure in samples.figures(name, unit)),
        *(figure for name, unit in ends.items() for figure in kills.figures(name, unit)),
    ]


def _ratios(samples: Samples, kills: Samples) -> list[Ratio]:
    ours, unmerged, recipe = OURS.name, UNMERGED.name, RECIPE.name

    def at_most(bound: float) -> Target:
        return Target(bound, is_ceiling=True)

    return [
        *samples.value("HTTP submit → first token, p50", ours, P50, unit="ms", target=at_most(6)),
        *samples.value("HTTP submit → first token, p99", ours, P99, unit="ms", target=at_most(10)),
        *samples.ratio("HTTP submit → first token, p50", ours, recipe, figure=P50, better="lower"),
        *samples.ratio("HTTP submit → first token, p50", ours, A2A.name, figure=P50, better="lower"),
        *samples.ratio("HTTP, one run, merging off", unmerged, recipe, figure=RATE, target=Target(1.5)),
        *samples.ratio("HTTP, one run, merging on", ours, recipe, figure=RATE, target=Target(10)),
        *samples.ratio("HTTP, one run, merging on", ours, unmerged, figure=RATE),
        *samples.ratio(f"HTTP, {_SIDE} runs at once, merging off", unmerged, recipe, figure=RATE_SIDE, target=Target(1.5)),
        *samples.ratio(f"HTTP, {_SIDE} runs at once, merging on", ours, recipe, figure=RATE_SIDE, target=Target(1.5)),
        *samples.ratio(f"HTTP, {_SIDE} runs at once, merging on", ours, unmerged, figure=RATE_SIDE),
        *samples.value(f"HTTP, {_SIDE} runs at once, worst first token", ours, WORST_FIRST, unit="ms", target=at_most(150)),
        *(
            ratio
            for when in (LIVE, OVER)
            for name in (LOST, DOUBLED, RESENT)
            for ratio in samples.value(f"HTTP, {when}: {name}", ours, f"{when}: {name}", unit="", target=_NOTHING)
        ),
        *(
            ratio
            for stack in (OURS, RESUMING)
            for name, unit, target in (
                (NEWS, "s", at_most(LEASE_S + 1)), (FINALS, "", Target(1)), (LOST, "", _NOTHING), (DOUBLED, "", _NOTHING),
            )
            for ratio in kills.value(f"{stack.name}, {KILLED}: {name}", stack.name, f"{KILLED}: {name}", unit=unit, target=target)
        ),
    ]  # fmt: skip
