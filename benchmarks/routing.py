"""Finals a second through the router into SQLite, each with its state, history and ledger rows; beside hand-written batches."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import time
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from itertools import islice, product
from pathlib import Path

import redis.asyncio

from skillstream import Client
from skillstream.cli.process import calm_garbage_collector
from skillstream_router.app import Router
from skillstream_schemas.settings import Settings
from skillstream_worker import Worker

from .agents import REPLY, agent
from .measuring import Lab, Report, Target
from .processes import apart
from .server import Server, running_server

OURS, BY_HAND = "skillstream", "hand-written batches of 100, 4 rows each"
SAME_ROWS = "ceiling: hand-written batches of 100, the router's 9 rows each"
RATE, RATE_IN_THREE = "finals/s", "finals/s, each task looked at three times"
BATCH = 100
TURNS = 10
"""Tasks of one conversation, whose recent messages the router lists on the broker."""
_LOOK_S = 0.01
_ROUTED = "routed"
_ROUTED_S = 120.0
_KINDS = ("submitted", "opened", "final")
_TABLES = (
    "CREATE TABLE task (id TEXT PRIMARY KEY, state TEXT, updated REAL)",
    "CREATE TABLE history (task_id TEXT, seq INTEGER, body TEXT, PRIMARY KEY (task_id, seq))",
    "CREATE TABLE ledger (task_id TEXT, kind TEXT, amount INTEGER, at REAL, PRIMARY KEY (task_id, kind))",
)
_MORE_TABLES = (
    "CREATE TABLE transfer (id INTEGER PRIMARY KEY, task_id TEXT, kind TEXT, debit TEXT, credit TEXT, amount INTEGER, at REAL)",
    "CREATE TABLE posting (id INTEGER PRIMARY KEY, transfer_id INTEGER, account TEXT, amount INTEGER)",
)
_UPSERT = (
    "INSERT INTO task VALUES (?, 'done', ?) ON CONFLICT (id) DO UPDATE SET state = excluded.state, updated = excluded.updated"
)


def measure(lab: Lab) -> Report:
    """Has the tasks run once, then lets a fresh router with a fresh database work off their rings in each round.

    A task rings when it is submitted, opened and final. Rings of a task that stand together are one look at it, as for
    short tasks; rings of all submissions before all openings before all finals are three, as for long ones.
    """
    tasks = lab.size(10_000, 2_000)
    with running_server() as server:
        task_ids: list[str] = apart(run_tasks, url=server.url, tasks=tasks)
        measures = {
            OURS: partial(_route, server, task_ids, only_together=lab.is_quick),
            BY_HAND: partial(_write_by_hand, tasks, same_rows=False),
            SAME_ROWS: partial(_write_by_hand, tasks, same_rows=True),
        }
        samples = lab.alternate(measures, required=[OURS, BY_HAND])
    return Report(
        "routing",
        (*samples.figures(RATE, "finals/s"), *samples.figures(RATE_IN_THREE, "finals/s")),
        (
            *samples.ratio("router: finals/s into SQLite", OURS, BY_HAND, figure=RATE, target=Target(0.5)),
            *samples.ratio("router: finals/s into SQLite", OURS, SAME_ROWS, figure=RATE),
        ),
        samples.notes,
    )


def _route(server: Server, task_ids: list[str], *, only_together: bool) -> Mapping[str, float]:
    orders = {RATE: [(task_id, kind) for task_id in task_ids for kind in _KINDS]}
    if not only_together:
        orders[RATE_IN_THREE] = [(task_id, kind) for kind in _KINDS for task_id in task_ids]
    return {name: len(task_ids) / _seconds_to_route(server, rings, len(task_ids)) for name, rings in orders.items()}


def _seconds_to_route(server: Server, rings: list[tuple[str, str]], tasks: int) -> float:
    keys = Settings().keys
    with server.client.pipeline(transaction=False) as pipeline:
        for task_id, kind in rings:
            pipeline.xadd(keys.inbox_of(task_id), {"task": task_id, "kind": kind})
        for number in range(tasks // TURNS + 1):
            pipeline.delete(keys.context_messages(f"context-{number}"), keys.context_version(f"context-{number}"))
        pipeline.execute()
    with tempfile.TemporaryDirectory(prefix="skillstream-bench-") as folder:
        file = str(Path(folder, "router.db"))
        with ThreadPoolExecutor(1) as watching:
            watched = watching.submit(_tell_when_routed, server)
            begun_s: float = apart(route, url=server.url, file=file)
            seconds = watched.result() - begun_s
        with closing(sqlite3.connect(file)) as database:
            rows = database.execute(
                "SELECT (SELECT count(*) FROM tasks WHERE finished_at IS NOT NULL), "
                "(SELECT count(*) FROM messages), (SELECT count(*) FROM postings)"
            ).fetchone()
    if rows != (tasks, 2 * tasks, 4 * tasks):  # two transfers: to the agent and to the platform
        raise RuntimeError(f"{tasks} tasks became {rows} rows of tasks, messages and postings")
    return seconds


def _write_by_hand(tasks: int, *, same_rows: bool) -> Mapping[str, float]:
    with tempfile.TemporaryDirectory(prefix="skillstream-bench-") as folder:
        return {RATE: tasks / apart(write_by_hand, file=str(Path(folder, "hand.db")), tasks=tasks, same_rows=same_rows)}


async def run_tasks(url: str, tasks: int) -> list[str]:
    """Has a worker run priced tasks with a payer and a context each, and empties the inboxes; returns their ids."""
    settings = Settings(redis_url=url)
    async with Worker([agent], settings), Client(settings=settings) as client:
        left = iter(range(tasks))
        handles = []
        while numbers := list(islice(left, BATCH)):
            handles += await asyncio.gather(*(
                client.submit("bench", "answer", "", payer=f"payer-{n % 10}", context_id=f"context-{n // TURNS}")
                for n in numbers
            ))  # fmt: skip
        await asyncio.gather(*(handle.result(_ROUTED_S) for handle in handles))
    async with redis.asyncio.Redis.from_url(url) as outside:
        await outside.delete(*(settings.keys.inbox(shard) for shard in range(settings.shards)))
    return [handle.id for handle in handles]


def _tell_when_routed(server: Server) -> float:
    """When every ring was acknowledged, which is behind the commit; the router's own process would be held up by the look."""
    keys, give_up_s = Settings().keys, time.perf_counter() + _ROUTED_S
    while time.perf_counter() < give_up_s:
        with server.client.pipeline(transaction=False) as pipeline:
            for shard in range(keys.shard_count):
                pipeline.xlen(keys.inbox(shard))
            if not any(pipeline.execute()):
                break
        time.sleep(_LOOK_S)
    routed_s = time.perf_counter()
    server.client.rpush(_ROUTED, 1)
    return routed_s


async def route(url: str, file: str) -> float:
    """When a router began to read, told once it is told that it may end; the clock is the machine's (Linux)."""
    settings = Settings(redis_url=url, database_url=f"sqlite:///{file}")
    async with redis.asyncio.Redis.from_url(url) as outside, Router(settings):
        calm_garbage_collector()  # as the command does
        begun_s = time.perf_counter()  # the tables are made: the inbox is read from here on
        await outside.blpop([_ROUTED], 2 * _ROUTED_S)
        return begun_s


async def write_by_hand(file: str, tasks: int, same_rows: bool) -> float:
    """Seconds for the rows of finals, 100 tasks a transaction, WAL and synchronous FULL as the router has them.

    A final is a state, a history row of 1 KB and two ledger rows; with `same_rows` as many rows as the router writes: a
    state, two messages, two transfers and four postings, without the router's indexes, checks and foreign keys.
    """
    with closing(sqlite3.connect(file, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=FULL")
        for table in (*_TABLES, *_MORE_TABLES):
            database.execute(table)
        begun_s = time.perf_counter()
        for first in range(0, tasks, BATCH):
            ids = [uuid.uuid4().hex for _ in range(min(BATCH, tasks - first))]
            now_s = time.time()
            database.execute("BEGIN IMMEDIATE")
            database.executemany(_UPSERT, [(task_id, now_s) for task_id in ids])
            database.executemany("INSERT INTO history VALUES (?, 1, ?)", [(task_id, REPLY) for task_id in ids])
            if same_rows:
                _add_the_rest(database, ids, 2 * first, now_s)
            else:
                entries = [(task_id, kind, now_s) for task_id in ids for kind in ("debit", "credit")]
                database.executemany("INSERT INTO ledger VALUES (?, ?, 10, ?)", entries)
            database.execute("COMMIT")
        return time.perf_counter() - begun_s


def _add_the_rest(database: sqlite3.Connection, ids: list[str], first_transfer: int, now_s: float) -> None:
    database.executemany("INSERT INTO history VALUES (?, 2, '')", [(task_id,) for task_id in ids])
    transfers = [
        (first_transfer + place, task_id, kind, "payer:1", credit, 10, now_s)
        for place, (task_id, (kind, credit)) in enumerate(product(ids, (("share", "agent:bench"), ("fee", "platform"))))
    ]
    database.executemany("INSERT INTO transfer VALUES (?, ?, ?, ?, ?, ?, ?)", transfers)
    postings = [
        (transfer[0], account, amount)
        for transfer in transfers
        for account, amount in ((transfer[3], -transfer[5]), (transfer[4], transfer[5]))
    ]
    database.executemany("INSERT INTO posting (transfer_id, account, amount) VALUES (?, ?, ?)", postings)
