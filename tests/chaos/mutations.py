"""Shows that the checker catches what it is there for: each fault is planted in a copy of the tree, and must be found.

`python -m tests.chaos.mutations [NAME...]` prints a table; the exit code is 1 where a planted fault was not caught, or
the sound tree did not pass its situation. The work tree is never changed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_ROOTS = ("schemas", "client", "worker", "router")
_BOUND_S = 90.0


@dataclass(frozen=True)
class Mutation:
    """A planted fault: the situation in which it shows, and the changes that make it.

    A change is a part of the product, a text that stands in it once, and what replaces it.
    `caught_by` is a part of the violation's sentence.
    """

    name: str
    changes: tuple[tuple[str, str, str], ...]
    situation: str
    caught_by: str


_CLIENT, _WORKER, _ROUTER = "client/skillstream", "worker/skillstream_worker", "router/skillstream_router"
_ONLY_LEGAL = (
    _ROUTER,
    "index_elements=[tasks.c.id], set_=changes, where=and_(_is_legal(new), _is_newer(new), _is_same_task(new))",
    "index_elements=[tasks.c.id], set_=changes",
)
MUTATIONS = (
    Mutation(
        "renewal without owner check",
        ((_WORKER, "if redis.call('GET', KEYS[i]) == ARGV[i * 2 - 1] then", "if true then"),),
        "stalled_worker_renews",
        "0 finals",
    ),
    Mutation(
        "release without owner check",
        ((_WORKER, "if redis.call('GET', KEYS[2]) ~= ARGV[2] then return 0 end", ""),),
        "stalled_worker_releases",
        "took a lease that was held",
    ),
    Mutation(
        "opening without final check",
        ((_WORKER, "if value_of(top[2], 'type') == 'final' then return {'final', top[1], top[2]} end", ""),),
        "worker_dies_behind_its_final",
        "2 finals",
    ),
    Mutation(
        "final without its ring",
        ((_WORKER, "redis.call('XADD', KEYS[2], '*', 'task', ARGV[1], 'kind', 'final')", ""),),
        "no_router_runs",
        "for one final",
    ),
    Mutation(
        "settled before its final",
        (
            (
                _WORKER,
                "        at_ms = await publication.finish(fields)\n",
                "        self._settle(fields)\n        at_ms = await publication.finish(fields)\n",
            ),
        ),
        "broker_refuses_a_final",
        "left the queue before its final",
    ),
    Mutation(
        "flight without MULTI/EXEC",
        (
            (
                _WORKER,
                "        if len(commands) == 1:\n            return commands[0], 1\n",
                '        return b"".join(commands), len(commands)\n',
            ),
        ),
        "broker_refuses_inside_a_flight",
        " after (1, ",
    ),
    Mutation(
        "ids that are not dense",
        ((_WORKER, "            seq += 1\n", "            seq += 2\n"),),
        "a_task_streams",
        " after (1, ",
    ),
    Mutation(
        "state without WHERE not final",
        (_ONLY_LEGAL,),
        "router_stalls_before_its_transaction",
        "state is working in the database, completed on the stream",
    ),
    Mutation(
        "posting that is not unique",
        (
            _ONLY_LEGAL,
            (
                _ROUTER,
                "insert(transfers).on_conflict_do_nothing(index_elements=[transfers.c.task_id, transfers.c.kind]),",
                "insert(transfers),",
            ),
            (_ROUTER, '    UniqueConstraint("task_id", "kind"),\n', ""),
        ),
        "ring_is_delivered_twice",
        "of 50000 micros",
    ),
    Mutation(
        "acknowledged before the commit",
        (
            (
                _ROUTER,
                "            streamless = await self._apply(batch)\n",
                "            await self._acknowledge(waiting, [notice.task_id for notice in batch])\n"
                "            streamless = await self._apply(batch)\n",
            ),
        ),
        "router_dies_before_its_commit",
        "0 rows in the database",
    ),
    Mutation(
        "claim without owner check",
        ((_WORKER, "ARGV[1] .. ':' .. number, 'NX', 'PX'", "ARGV[1] .. ':' .. number, 'PX'"),),
        "any_interleaving",
        "G4: a job of ",
    ),
    Mutation(
        "opening for an older claim",
        ((_WORKER, "if claim > tonumber(ARGV[3]) then return {'superseded', top[1]} end", ""),),
        "any_interleaving",
        "G4: an older claim opened",
    ),
    Mutation(
        "opening in spite of a cancellation",
        ((_WORKER, "if reason then return {'canceled', top[1], reason} end", ""),),
        "any_interleaving",
        "G9: a cancellation was forgotten",
    ),
    Mutation(
        "close without a look at what was read",
        ((_CLIENT, "if attempt ~= seen_attempt or tonumber(seq) < tonumber(seen_seq) then return {'stale'} end", ""),),
        "any_interleaving",
        "G5: the text of the final",
    ),
)


def main() -> int:
    """Plays each situation on the sound tree and on the mutated one."""
    wanted = set(sys.argv[1:])
    print(f"{'planted fault':34} {'sound':>8} {'planted':>8} {'s':>5}  first violation that the checker names", flush=True)
    failed = 0
    for mutation in MUTATIONS:
        if wanted and mutation.name not in wanted:
            continue
        start_s = time.monotonic()
        sound, planted = _violations(mutation, is_planted=False), _violations(mutation, is_planted=True)
        caught = [sentence for sentence in planted if mutation.caught_by in sentence]
        is_right = not sound and bool(caught)
        failed += not is_right
        shown = (caught or sound or planted or ["NOT CAUGHT"])[0]
        verdict = "" if is_right else "WRONG  "
        spent_s = time.monotonic() - start_s
        print(f"{mutation.name:34} {len(sound):8} {len(planted):8} {spent_s:5.0f}  {verdict}{shown}", flush=True)
    print(f"{failed} planted faults were not caught, or stand in the sound tree" if failed else "all planted faults were caught")
    return 1 if failed else 0


def _violations(mutation: Mutation, *, is_planted: bool) -> list[str]:
    with tempfile.TemporaryDirectory(prefix="skillstream-mutation-") as folder:
        copy = Path(folder)
        for name in (*_ROOTS, "tests"):
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        if is_planted:
            for change in mutation.changes:
                _plant(copy, *change)
        return _play(copy, mutation.situation)


def place_of(root: Path, part: str, text: str) -> Path:
    """The file of a part that holds a text; raises LookupError unless there is one, and the text stands in it once."""
    files = [path for kind in ("*.py", "*.lua") for path in sorted((root / part).rglob(kind))]
    counts = {path: count for path in files if (count := path.read_text().count(text))}
    if sum(counts.values()) != 1:
        raise LookupError(f"{part} holds the text to be replaced {sum(counts.values())} times, not once: {text!r}")
    return next(iter(counts))


def _plant(copy: Path, part: str, old: str, new: str) -> None:
    path = place_of(copy, part, old)
    path.write_text(path.read_text().replace(old, new))


def _play(copy: Path, situation: str) -> list[str]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(str(copy / name) for name in _ROOTS), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "tests.chaos.situations", situation]
    done = subprocess.run(command, cwd=copy, env=env, capture_output=True, text=True, timeout=_BOUND_S)
    if done.returncode not in (0, 1) or (done.returncode == 1 and not done.stdout.strip()):
        raise SystemExit(f"{situation} broke:\n{done.stdout}\n{done.stderr}")
    return [line for line in done.stdout.splitlines() if line]


if __name__ == "__main__":
    raise SystemExit(main())
