"""Checks from outside what became of tasks, with redis-py and sqlite3 alone: it shares no code with the product.

`python -m tests.acceptance.checker REDIS_URL DATABASE_FILE < task_ids` prints counts and each violation, and exits
with 1 where there is one. What it checks for every task: exactly one final and nothing behind it, dense ids, the
final's text as the chunks say, a database row that says the same, one history row a role, one ledger effect where
the task was completed and has a payer, none otherwise; for every transfer that its two postings add up to nothing;
and for all tasks that no job, lease or unread ring is left.
"""

from __future__ import annotations

import sqlite3
import sys
from binascii import crc32
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import redis

FINALS = {"completed", "failed", "canceled", "input-required"}
Entry = tuple[tuple[int, int], dict[str, str]]


@dataclass
class Report:
    """What was found: counts of final states, and violations as sentences."""

    states: Counter[str] = field(default_factory=Counter)
    chunks: int = 0
    charged_micros: int = 0
    violations: list[str] = field(default_factory=list)

    def expect(self, holds: bool, sentence: str) -> None:
        """Notes a violation where something does not hold."""
        if not holds:
            self.violations.append(sentence)


def check(url: str, database: str, task_ids: list[str]) -> Report:
    """Checks all tasks; returns what was found."""
    report = Report()
    broker: Any = redis.Redis.from_url(url, decode_responses=True, protocol=2)
    shards = int(broker.get("skillstream:shards") or 0)
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as store:
        store.row_factory = sqlite3.Row
        for task_id in task_ids:
            key = f"skillstream:task:{{{crc32(task_id.encode()) % shards}}}:{task_id}:events"
            entries = [(_id(raw), fields) for raw, fields in broker.xrange(key)]
            _check_stream(task_id, entries, report)
            if entries:
                _check_rows(task_id, entries[0][1], entries[-1][1], store, report)
        _check_accounts(store, report)
    _check_nothing_left(broker, report)
    broker.close()
    return report


def _id(raw: str) -> tuple[int, int]:
    attempt, seq = raw.split("-")
    return int(attempt), int(seq)


def _check_stream(task_id: str, entries: list[Entry], report: Report) -> None:
    finals = [number for number, (_, fields) in enumerate(entries) if fields.get("type") == "final"]
    report.expect(len(finals) == 1, f"{task_id}: {len(finals)} finals")
    if len(finals) != 1:
        return
    report.expect(finals[0] == len(entries) - 1, f"{task_id}: something follows the final")
    report.expect(entries[0][0] == (0, 1), f"{task_id}: begins with {entries[0][0]}")
    for (before, _), (after, _) in pairwise(entries):
        dense = after == (before[0], before[1] + 1) or (after[0] > before[0] and after[1] == 1)
        report.expect(dense, f"{task_id}: {after} after {before}")
    final = entries[-1][1]
    last_attempt = entries[-1][0][0]
    report.states[final["state"]] += 1
    report.expect(final["state"] in FINALS, f"{task_id}: final with state {final['state']}")
    text, resumed, chunks = _text(entries, last_attempt)
    report.chunks += chunks
    report.expect(int(final["chunks"]) == chunks, f"{task_id}: final counts {final['chunks']} chunks of {chunks}")
    if chunks or resumed:
        report.expect(final["text"] == text, f"{task_id}: the final's text is not what its chunks say")


def _text(entries: list[Entry], last_attempt: int) -> tuple[str, bool, int]:
    text, resumed, chunks = "", False, 0
    for (attempt, seq), fields in entries:
        if seq == 1 and attempt > 0:
            text = text[: int(fields.get("resume_from", 0))]
            resumed, chunks = "resume_from" in fields, 0
        if fields["type"] == "chunk" and "text" in fields:
            text += fields["text"]
            chunks += 1
    return text, resumed, chunks if entries[-1][0][0] == last_attempt else 0


def _check_rows(task_id: str, request: dict[str, str], final: dict[str, str], store: sqlite3.Connection, report: Report) -> None:
    rows = store.execute("SELECT * FROM tasks WHERE id = ?", (task_id,)).fetchall()
    report.expect(len(rows) == 1, f"{task_id}: {len(rows)} rows in the database")
    if len(rows) != 1 or final.get("type") != "final":
        return
    report.expect(
        rows[0]["state"] == final["state"], f"{task_id}: {rows[0]['state']} in the database, {final['state']} on the stream"
    )
    if request.get("context_id"):
        roles: list[Any] = [
            row["role"] for row in store.execute("SELECT role FROM messages WHERE task_id = ? ORDER BY id", (task_id,))
        ]
        report.expect(roles == ["user", "agent"], f"{task_id}: history rows {roles}")
    price = int(request.get("price_micros", 0))
    owed = price if final["state"] == "completed" and request.get("payer") else 0
    kinds = Counter(row["kind"] for row in store.execute("SELECT kind FROM transfers WHERE task_id = ?", (task_id,)))
    report.expect(all(count == 1 for count in kinds.values()), f"{task_id}: transfers {dict(kinds)}")
    (charged,) = store.execute(
        "SELECT COALESCE(-SUM(p.amount_micros), 0) FROM postings p JOIN transfers t ON t.id = p.transfer_id "
        "WHERE t.task_id = ? AND p.amount_micros < 0 AND p.account = ?",
        (task_id, f"payer:{request.get('payer')}"),
    ).fetchone()
    report.charged_micros += charged
    report.expect(charged == owed, f"{task_id}: charged {charged} of {owed} micros")


def _check_accounts(store: sqlite3.Connection, report: Report) -> None:
    unbalanced = store.execute("SELECT transfer_id FROM postings GROUP BY transfer_id HAVING SUM(amount_micros) <> 0").fetchall()
    report.expect(not unbalanced, f"{len(unbalanced)} transfers whose postings do not add up to nothing")
    wrong = store.execute(
        "SELECT t.id FROM transfers t LEFT JOIN postings p ON p.transfer_id = t.id GROUP BY t.id "
        "HAVING COUNT(p.id) <> 2 OR MAX(p.amount_micros) <> t.amount_micros"
    ).fetchall()
    report.expect(not wrong, f"{len(wrong)} transfers without their two postings")


def _check_nothing_left(broker: redis.Redis, report: Report) -> None:
    for key in broker.scan_iter("arq:queue:*"):
        report.expect(broker.zcard(key) == 0, f"{key} holds {broker.zcard(key)} jobs")
    for pattern in ("arq:in-progress:*", "arq:job:*"):
        left = list(broker.scan_iter(pattern))
        report.expect(not left, f"{len(left)} keys {pattern} are left")
    for key in broker.scan_iter("skillstream:inbox:*"):
        report.expect(broker.xlen(key) == 0, f"{key} holds {broker.xlen(key)} rings")


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
