"""Checks from outside what became of tasks, with redis-py and sqlite3 alone: it shares no code with the product.

`python -m tests.acceptance.checker REDIS_URL DATABASE_FILE < task_ids` prints counts and each violation, and exits
with 1 where there is one. What it checks for every task: exactly one final and nothing behind it, dense ids, claims
that grow, no lease taken before its end, strikes that count, the final's text as the chunks say, a database row that
says the same, one history row a role, one ledger effect where the task was completed and has a payer, none otherwise;
for every transfer that its two postings add up to nothing, for every context that the broker has its newest messages;
and for all tasks that no job, lease, claim counter or ring is left, and no key without TTL but those that have none.
With orders (see `order`) also that each task became what was asked for, and that its clients heard what is there.
"""

from __future__ import annotations

import sqlite3
import sys
from binascii import crc32
from collections.abc import Iterable
from typing import Any

import redis

from .database_rules import check_accounts, check_contexts, check_rows
from .order import Order
from .order_rules import check_order
from .report import Entry, Report
from .stream_rules import check_stream

_PERMANENT = ("arq:queue:", "skillstream:inbox:", "skillstream:agents", "skillstream:shards")
_FINAL_TTL_MS = 86_400_000


def check(url: str, database: str, task_ids: Iterable[str], *, orders: Iterable[Order] = (), lease_ms: int = 0) -> Report:
    """Checks all tasks, those of `orders` besides; returns what was found. `lease_ms` as in `check_stream`."""
    broker = redis.Redis.from_url(url, decode_responses=True, protocol=2)
    try:
        return check_at(broker, database, task_ids, orders=orders, lease_ms=lease_ms)
    finally:
        broker.close()


def check_at(broker: Any, database: str, task_ids: Iterable[str], *, orders: Iterable[Order] = (), lease_ms: int = 0) -> Report:
    """The same, with a client that is open: one of a cluster, for example."""
    report = Report()
    asked = {order.task_id: order for order in orders}
    shards = int(broker.get("skillstream:shards") or 0)
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as store:
        store.row_factory = sqlite3.Row
        for task_id in dict.fromkeys((*task_ids, *asked)):
            key = f"skillstream:task:{{{crc32(task_id.encode()) % shards}}}:{task_id}:events"
            entries = read_entries(broker, key)
            check_stream(task_id, entries, report, lease_ms)
            if entries:
                check_rows(task_id, entries, store, report)
                ttl_ms = broker.pttl(key)
                report.expect(0 < ttl_ms <= _FINAL_TTL_MS, f"{task_id}: an ended task's stream stays {ttl_ms} ms")
            if entries and task_id in asked:
                check_order(asked[task_id], entries, report)
        check_accounts(store, report)
        check_contexts(broker, store, report)
        if asked:
            _check_nothing_unasked(broker, store, set(asked), report)
    _check_nothing_left(broker, report)
    return report


def check_rings(url: str, task_ids: Iterable[str], report: Report) -> None:
    """Checks, where no router has run, that each task's final has left its ring."""
    broker: Any = redis.Redis.from_url(url, decode_responses=True, protocol=2)
    shards = int(broker.get("skillstream:shards"))
    for task_id in task_ids:
        rings = broker.xrange(f"skillstream:inbox:{{{crc32(task_id.encode()) % shards}}}")
        kinds = [fields["kind"] for _, fields in rings if fields["task"] == task_id]
        report.expect(kinds.count("final") == 1, f"{task_id}: rings {kinds} for one final")
    broker.close()


def check_jobs(broker: Any, agent: str, task_ids: Iterable[str], report: Report) -> set[str]:
    """Checks of acknowledged tasks that each without a final has its job on the queue; returns those without a final.

    May be called at any time, also while everything fails: what it reads of a task is read at one moment.
    """
    shards = int(broker.get("skillstream:shards"))
    unfinished = set()
    for task_id in task_ids:
        member = f"{{{agent}}}:{task_id}"
        read = broker.pipeline(transaction=True)
        read.zscore(f"arq:queue:{{{agent}}}", member)
        read.exists(f"arq:job:{member}")
        read.xrevrange(f"skillstream:task:{{{crc32(task_id.encode()) % shards}}}:{task_id}:events", count=1)
        score, has_job, top = read.execute()
        if top and top[0][1]["type"] == "final":
            continue
        unfinished.add(task_id)
        report.expect(bool(top), f"{task_id}: acknowledged and has no stream")
        report.expect(score is not None and has_job == 1, f"{task_id}: its job left the queue before its final was there")
    return unfinished


def read_entries(broker: Any, key: str) -> list[Entry]:
    """A stream as it stands."""
    return [(_id(raw), fields) for raw, fields in broker.xrange(key)]


def _id(raw: str) -> tuple[int, int]:
    attempt, seq = raw.split("-")
    return int(attempt), int(seq)


def _check_nothing_unasked(broker: Any, store: sqlite3.Connection, asked: set[str], report: Report) -> None:
    streams = {key.rsplit(":", 2)[-2] for key in broker.scan_iter("skillstream:task:*:events", count=1000)}
    rows = {row["id"] for row in store.execute("SELECT id FROM tasks")}
    for where, found in (("on the broker", streams), ("in the database", rows)):
        report.expect(found <= asked, f"{len(found - asked)} tasks {where} that nobody asked for: {sorted(found - asked)[:5]}")


def _check_nothing_left(broker: Any, report: Report) -> None:
    for key in broker.scan_iter("arq:queue:*"):
        report.expect(broker.zcard(key) == 0, f"{key} holds {broker.zcard(key)} jobs")
    for pattern in ("arq:in-progress:*", "arq:job:*", "arq:retry:*"):
        left = list(broker.scan_iter(pattern))
        report.expect(not left, f"{len(left)} keys {pattern} are left")
    for key in broker.scan_iter("skillstream:inbox:*"):
        report.expect(broker.xlen(key) == 0, f"{key} holds {broker.xlen(key)} rings")
        pending = sum(group["pending"] for group in broker.xinfo_groups(key))
        report.expect(pending == 0, f"{key} has {pending} rings that nobody acknowledged")
    forever = [key for key in broker.scan_iter(count=1000) if broker.ttl(key) == -1 and not key.startswith(_PERMANENT)]
    report.expect(not forever, f"{len(forever)} keys without TTL: {sorted(forever)[:5]}")


def main() -> int:
    """Checks the task ids on standard input."""
    url, database = sys.argv[1:]
    task_ids = sys.stdin.read().split()
    report = check(url, database, task_ids)
    print(f"tasks={len(task_ids)} finals={dict(report.states)} chunks={report.chunks} charged_micros={report.charged_micros}")
    print(f"violations={len(report.violations)}")
    for sentence in report.violations[:50]:
        print("  " + sentence)
    return 1 if report.violations else 0


if __name__ == "__main__":
    raise SystemExit(main())
