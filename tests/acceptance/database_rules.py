"""What must hold for the router's database: it says what the streams say, and money moved once."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from typing import Any

from .report import Entry, Report

_PLATFORM_SHARE = 500
_KEPT_MESSAGES = 50


def check_rows(task_id: str, entries: list[Entry], store: sqlite3.Connection, report: Report) -> None:
    """Checks what the database has of one ended task."""
    request, final = entries[0][1], entries[-1][1]
    rows = store.execute("SELECT * FROM tasks WHERE id = ?", (task_id,)).fetchall()
    report.expect(len(rows) == 1, f"{task_id}: {len(rows)} rows in the database")
    if len(rows) != 1 or final.get("type") != "final":
        return
    row = rows[0]
    wanted = {
        "state": final["state"], "error": final.get("error"), "reason": final.get("reason"), "finished_at": int(final["at"]),
        "last_event_id": "{}-{}".format(*entries[-1][0]), "attempt": entries[-1][0][0], "context_id": request.get("context_id"),
        "payer": request.get("payer"), "price_micros": int(request.get("price_micros", 0)),
    }  # fmt: skip
    for name, value in wanted.items():
        report.expect(row[name] == value, f"{task_id}: {name} is {row[name]} in the database, {value} on the stream")
    messages = store.execute("SELECT role, text FROM messages WHERE task_id = ? ORDER BY id", (task_id,))
    said: list[Any] = [tuple(message) for message in messages]
    turns = [("user", request["message"]), *([("agent", final["text"])] if final["text"] else [])]
    report.expect(said == turns, f"{task_id}: history rows {[role for role, _ in said]} for {[role for role, _ in turns]}")
    _check_charge(task_id, request, final, store, report)


def check_accounts(store: sqlite3.Connection, report: Report) -> None:
    """Checks that no money came from nowhere or went there."""
    unbalanced = store.execute("SELECT transfer_id FROM postings GROUP BY transfer_id HAVING SUM(amount_micros) <> 0").fetchall()
    report.expect(not unbalanced, f"{len(unbalanced)} transfers whose postings do not add up to nothing")
    wrong = store.execute(
        "SELECT t.id FROM transfers t LEFT JOIN postings p ON p.transfer_id = t.id GROUP BY t.id "
        "HAVING COUNT(p.id) <> 2 OR MAX(p.amount_micros) <> t.amount_micros"
    ).fetchall()
    report.expect(not wrong, f"{len(wrong)} transfers without their two postings")


def check_contexts(broker: Any, store: sqlite3.Connection, report: Report) -> None:
    """Checks that each conversation's list on the broker holds the newest messages of the database."""
    for (context_id,) in store.execute("SELECT DISTINCT context_id FROM messages WHERE context_id IS NOT NULL"):
        query = "SELECT id, task_id, role, text, turn_at FROM messages WHERE context_id = ? ORDER BY turn_at, task_id, id"
        rows = store.execute(query, (context_id,)).fetchall()
        key = f"skillstream:context:{{{context_id}}}"
        kept = [json.loads(text) for text in broker.lrange(f"{key}:messages", 0, -1)]
        newest = rows[-_KEPT_MESSAGES:]
        wanted = [(row["task_id"], row["role"], row["text"]) for row in newest]
        found = [(turn.get("task_id"), turn["role"], turn["text"]) for turn in kept]
        report.expect(found == wanted, f"context {context_id}: {len(found)} messages on the broker, {len(wanted)} to be kept")
        version = broker.get(f"{key}:version")
        last_recorded = max(row["id"] for row in newest)
        report.expect(version == str(last_recorded), f"context {context_id}: version {version} for message {last_recorded}")


def _check_charge(
    task_id: str, request: dict[str, str], final: dict[str, str], store: sqlite3.Connection, report: Report
) -> None:
    price = int(request.get("price_micros", 0))
    owed = price if final["state"] == "completed" and request.get("payer") else 0
    found = store.execute("SELECT kind, credit, amount_micros FROM transfers WHERE task_id = ?", (task_id,)).fetchall()
    kinds = Counter(row["kind"] for row in found)
    report.expect(all(count == 1 for count in kinds.values()), f"{task_id}: transfers {dict(kinds)}")
    fee = owed * _PLATFORM_SHARE // 10_000
    shares = {f"agent:{request['agent']}": owed - fee, "platform": fee}
    moved = {row["credit"]: row["amount_micros"] for row in found}
    report.expect(moved == {name: share for name, share in shares.items() if share}, f"{task_id}: moved {moved} of {shares}")
    (charged,) = store.execute(
        "SELECT COALESCE(-SUM(p.amount_micros), 0) FROM postings p JOIN transfers t ON t.id = p.transfer_id "
        "WHERE t.task_id = ? AND p.amount_micros < 0 AND p.account = ?",
        (task_id, f"payer:{request.get('payer')}"),
    ).fetchone()
    report.charged_micros += charged
    report.expect(charged == owed, f"{task_id}: charged {charged} of {owed} micros")
