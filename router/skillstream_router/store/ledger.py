"""The duty "payment": what a completed task costs, in double entry (guarantees G7, G16)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from skillstream_schemas.state import TaskState

from .dialect import insert
from .record import TaskRecord
from .tables import accounts, postings, transfers

PLATFORM = "platform"
_WHOLE_SHARE = 10_000

_INSERT_ACCOUNTS = insert(accounts).on_conflict_do_nothing(index_elements=[accounts.c.name])
_INSERT_TRANSFERS = (
    insert(transfers)
    .on_conflict_do_nothing(index_elements=[transfers.c.task_id, transfers.c.kind])
    .returning(transfers.c.id, transfers.c.debit, transfers.c.credit, transfers.c.amount_micros)
)
_INSERT_POSTINGS = insert(postings)


@dataclass(frozen=True, slots=True)
class Transfer:
    """An amount that goes from one account to another for one task; `kind` is `earning` or `fee`."""

    task_id: str
    kind: str
    debit: str
    credit: str
    amount_micros: int
    at: int


_TRANSFER_COLUMNS = tuple(Transfer.__dataclass_fields__)


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
    rows: list[dict[str, object]] = []
    opened: dict[str, int] = {}
    for transfer in wanted:
        rows.append({name: getattr(transfer, name) for name in _TRANSFER_COLUMNS})
        for account in (transfer.debit, transfer.credit):
            opened.setdefault(account, transfer.at)
    if not rows:
        return
    connection.execute(_INSERT_ACCOUNTS, [{"name": name, "opened_at": at} for name, at in sorted(opened.items())])
    made = connection.execute(_INSERT_TRANSFERS, rows)
    moved = [
        {"transfer_id": transfer_id, "account": account, "amount_micros": amount}
        for transfer_id, debit, credit, amount_micros in made
        for account, amount in ((debit, -amount_micros), (credit, amount_micros))
    ]
    if moved:
        connection.execute(_INSERT_POSTINGS, moved)


def charge(connection: Connection, ended: Sequence[TaskRecord], platform_share: int) -> None:
    """Charges for tasks that just became final."""
    post(connection, (transfer for record in ended for transfer in transfers_of(record, platform_share)))
