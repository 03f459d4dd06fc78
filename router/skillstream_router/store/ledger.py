"""The duty "payment": what a completed task costs, in double entry (guarantees G7, G16)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import Connection, Insert, Integer, bindparam, case, func, literal_column, select, true, union_all

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


class Transfer(NamedTuple):
    """An amount that goes from one account to another for one task; `kind` is `earning` or `fee`."""

    task_id: str
    kind: str
    debit: str
    credit: str
    amount_micros: int
    at: int


def transfers_of(record: TaskRecord, platform_share: int) -> list[Transfer]:
    """What an ended task moves: nothing unless it is completed, has a price and a payer.

    `platform_share` is in hundredths of a percent; the fee is rounded down, the agent earns the rest.
    """
    if record.state is not TaskState.COMPLETED or record.payer is None:
        return []
    task_id, payer, at = record.id, f"payer:{record.payer}", record.finished_at or 0
    fee_micros = record.price_micros * platform_share // _WHOLE_SHARE
    earned_micros = record.price_micros - fee_micros
    moved = []
    if earned_micros > 0:
        moved.append(Transfer(task_id, "earning", payer, f"agent:{record.agent}", earned_micros, at))
    if fee_micros > 0:
        moved.append(Transfer(task_id, "fee", payer, PLATFORM, fee_micros, at))
    return moved


def post(connection: Connection, wanted: Sequence[Transfer]) -> None:
    """Writes transfers and their postings; a transfer that stands there already moves nothing again."""
    if not wanted:
        return
    opened: dict[str, int] = {}
    for _, _, debit, credit, _, at in reversed(wanted):
        opened[debit] = opened[credit] = at
    _OPEN_ACCOUNTS(connection, sorted(opened.items()))
    # the transaction has the write lock: what lies behind the highest id of before is its own
    before = connection.execute(_HIGHEST).scalar_one()
    _TRANSFER(connection, wanted)
    connection.execute(_POSTINGS, {"before": before})


def _postings() -> Insert:
    """Both sides of the transfers behind an id, in the order of the transfers: the debit gives, the credit takes."""
    sign = literal_column("sign", Integer)
    signs = union_all(*(select(literal_column(text, Integer).label("sign")) for text in ("-1", "1"))).subquery()
    account = case((sign < 0, transfers.c.debit), else_=transfers.c.credit)
    sides = (
        select(transfers.c.id, account, sign * transfers.c.amount_micros)
        .select_from(transfers.join(signs, true()))
        .where(transfers.c.id > bindparam("before"))
        .order_by(transfers.c.id)
    )
    return insert(postings).from_select(("transfer_id", "account", "amount_micros"), sides)


_HIGHEST = select(func.coalesce(func.max(transfers.c.id), 0))
_POSTINGS = _postings()


def charge(connection: Connection, ended: Sequence[TaskRecord], platform_share: int) -> None:
    """Charges for tasks that just became final."""
    post(connection, [transfer for record in ended for transfer in transfers_of(record, platform_share)])
