"""The duty "payment": what a completed task costs, in double entry (guarantees G7, G16)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, Insert, select, union_all

from skillstream_schemas.state import TaskState

from .dialect import ManyRows, insert
from .record import TaskRecord
from .tables import accounts, postings, transfers

PLATFORM = "platform"
_WHOLE_SHARE = 10_000

_OPEN_ACCOUNTS = ManyRows(insert(accounts).on_conflict_do_nothing(index_elements=[accounts.c.name]), ("name", "opened_at"))
_TRANSFER = ManyRows(
    insert(transfers).on_conflict_do_nothing(index_elements=[transfers.c.task_id, transfers.c.kind]),
    ("task_id", "kind", "debit", "credit", "amount_micros", "at"),
)


@dataclass(frozen=True, slots=True)
class Transfer:
    """An amount that goes from one account to another for one task; `kind` is `earning` or `fee`."""

    task_id: str
    kind: str
    debit: str
    credit: str
    amount_micros: int
    at: int


def transfers_of(record: TaskRecord, platform_share: int) -> Iterator[Transfer]:
    """What an ended task moves: nothing unless it is completed, has a price and a payer.

    `platform_share` is in hundredths of a percent; the fee is rounded down, the agent earns the rest.
    """
    if record.state is not TaskState.COMPLETED or record.payer is None:
        return
    fee_micros = record.price_micros * platform_share // _WHOLE_SHARE
    payer, at = f"payer:{record.payer}", record.finished_at or 0
    parts = (("earning", f"agent:{record.agent}", record.price_micros - fee_micros), ("fee", PLATFORM, fee_micros))
    for kind, credit, amount_micros in parts:
        if amount_micros > 0:
            yield Transfer(record.id, kind, payer, credit, amount_micros, at)


def post(connection: Connection, wanted: Iterable[Transfer]) -> None:
    """Writes transfers and their postings; a transfer that stands there already moves nothing again."""
    rows = []
    opened: dict[str, int] = {}
    for transfer in wanted:
        rows.append((transfer.task_id, transfer.kind, transfer.debit, transfer.credit, transfer.amount_micros, transfer.at))
        opened.setdefault(transfer.debit, transfer.at)
        opened.setdefault(transfer.credit, transfer.at)
    if not rows:
        return
    _OPEN_ACCOUNTS(connection, sorted(opened.items()))
    _TRANSFER(connection, rows)
    connection.execute(_postings_of(list({row[0] for row in rows})))


def _postings_of(task_ids: list[str]) -> Insert:
    """Both sides of these tasks' transfers, in the order of the transfers; those that have their postings get no others."""
    sides = union_all(
        select(transfers.c.id, transfers.c.debit, -transfers.c.amount_micros).where(transfers.c.task_id.in_(task_ids)),
        select(transfers.c.id, transfers.c.credit, transfers.c.amount_micros).where(transfers.c.task_id.in_(task_ids)),
    ).subquery("sides")
    posted = select(postings.c.id).where(postings.c.transfer_id == sides.c.id).exists()
    columns = ("transfer_id", "account", "amount_micros")
    return insert(postings).from_select(columns, select(sides).where(~posted).order_by(sides.c.id))


def charge(connection: Connection, ended: Sequence[TaskRecord], platform_share: int) -> None:
    """Charges for tasks that just became final."""
    post(connection, (transfer for record in ended for transfer in transfers_of(record, platform_share)))
