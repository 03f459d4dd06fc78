"""The database alone: states go forward, effects follow from a change, the ledger never changes."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from typing import Any

import pytest

from skillstream_router.store import Store, TaskRecord, Turns
from skillstream_router.store.ledger import transfers_of
from skillstream_schemas.errors import DatabaseRefused, DatabaseUnavailable, InvalidSettings
from skillstream_schemas.request import HistoryMessage
from skillstream_schemas.settings import Settings
from skillstream_schemas.state import FINAL_STATES, TRANSITIONS, TaskState

from .ledger_file import LedgerFile

PRICE = 50_000


def record(task_id: str = "t", state: TaskState = TaskState.COMPLETED, **changes: Any) -> TaskRecord:
    values: dict[str, Any] = {
        "id": task_id, "state": state, "agent": "poet", "skill": "rhyme", "submitted_at": 1000, "attempt": 1,
        "last_event_id": "1-2", "payer": "acme", "price_micros": PRICE, "context_id": "chat",
        "finished_at": 2000 if state.is_final else None,
    }  # fmt: skip
    return TaskRecord(**(values | changes))


def turns(*records: TaskRecord) -> list[Turns]:
    return [Turns(one, f"ask {one.id}", f"say {one.id}") for one in records]


@pytest.fixture
async def store(ledger_file: LedgerFile) -> AsyncIterator[Store]:
    opened = await Store(Settings(database_url=ledger_file.url, context_messages=3)).open()
    yield opened
    await opened.close()


@pytest.mark.guarantee("G7")
@pytest.mark.parametrize("old", list(TaskState))
@pytest.mark.parametrize("new", list(TaskState))
async def test_a_state_changes_only_along_the_transition_table(
    store: Store, ledger_file: LedgerFile, old: TaskState, new: TaskState
) -> None:
    await store.apply(turns(record(state=old)))
    await store.apply(turns(record(state=new, attempt=2, last_event_id="2-5")))
    allowed = new in TRANSITIONS[old]
    row = ledger_file.task("t")
    assert row["state"] == (new if allowed else old)
    assert row["last_event_id"] == ("2-5" if allowed else "1-2")


@pytest.mark.guarantee("G7")
@pytest.mark.parametrize(("attempt", "last"), [(1, "1-9"), (1, "1-10"), (2, "2-1")])
async def test_a_late_look_at_an_earlier_entry_does_not_go_back(
    store: Store, ledger_file: LedgerFile, attempt: int, last: str
) -> None:
    await store.apply(turns(record(state=TaskState.WORKING, attempt=attempt, last_event_id=last)))
    await store.apply(turns(record(state=TaskState.WORKING, attempt=1, last_event_id="1-8")))
    assert ledger_file.task("t")["last_event_id"] == last


@pytest.mark.guarantee("G7", "G16")
async def test_effects_follow_once_from_the_transaction_that_made_a_task_final(store: Store, ledger_file: LedgerFile) -> None:
    await store.apply(turns(record(state=TaskState.WORKING)))
    assert ledger_file.rows("SELECT * FROM messages") == []
    assert (await store.apply(turns(record()))).ended == {"t"}
    assert (await store.apply(turns(record(), record("u")))).ended == {"u"}
    assert (await store.apply(turns(record(state=TaskState.FAILED)))).ended == frozenset()
    assert ledger_file.balances() == {"payer:acme": -2 * PRICE, "agent:poet": 95_000, "platform": 5_000}
    assert ledger_file.rows("SELECT task_id, role FROM messages ORDER BY id") == [
        ("t", "user"), ("t", "agent"), ("u", "user"), ("u", "agent"),
    ]  # fmt: skip


@pytest.mark.guarantee("G16")
async def test_a_task_that_has_its_transfers_is_not_charged_again_even_if_its_state_were_lost(
    store: Store, ledger_file: LedgerFile
) -> None:
    await store.apply(turns(record()))
    with sqlite3.connect(ledger_file.path) as outside:
        outside.execute("UPDATE tasks SET state = 'working', finished_at = NULL")
    outside.close()
    assert (await store.apply(turns(record(price_micros=2 * PRICE)))).ended == {"t"}
    assert ledger_file.balances() == {"payer:acme": -PRICE, "agent:poet": 47_500, "platform": 2_500}
    assert ledger_file.rows("SELECT count(*) FROM messages") == [(2,)]


@pytest.mark.guarantee("G16")
@pytest.mark.parametrize("table", ["postings", "transfers"])
@pytest.mark.parametrize("change", ["UPDATE {} SET amount_micros = 1", "DELETE FROM {}"])
async def test_the_database_refuses_to_change_the_ledger(store: Store, ledger_file: LedgerFile, table: str, change: str) -> None:
    await store.apply(turns(record()))
    connection = sqlite3.connect(ledger_file.path)
    with pytest.raises(sqlite3.IntegrityError, match="never changed"):
        connection.execute(change.format(table))
    connection.close()


@pytest.mark.guarantee("G16")
@pytest.mark.parametrize("price", [1, 19, 20, 50_000, 10**15])
@pytest.mark.parametrize("share", [0, 1, 500, 9_999, 10_000])
def test_the_parts_of_a_price_add_up_to_it(price: int, share: int) -> None:
    parts = {part.kind: part.amount_micros for part in transfers_of(record(price_micros=price), share)}
    assert sum(parts.values()) == price
    assert parts.get("fee", 0) == price * share // 10_000
    assert all(amount > 0 for amount in parts.values())


@pytest.mark.guarantee("G16")
def test_without_completion_payer_or_price_nothing_moves() -> None:
    unpaid = [record(state=state) for state in sorted(FINAL_STATES - {TaskState.COMPLETED})]
    unpaid += [record(payer=None), record(price_micros=0)]
    assert [list(transfers_of(one, 500)) for one in unpaid] == [[]] * len(unpaid)


async def test_a_stream_that_is_open_though_the_database_has_a_final_is_told(store: Store) -> None:
    await store.apply(turns(record("a"), record("b", TaskState.WORKING)))
    again = [record("a", TaskState.WORKING, attempt=2, last_event_id="2-1"), record("b", TaskState.WORKING)]
    assert (await store.apply(turns(*again))).contradicted == {"a"}


@pytest.mark.guarantee("G7")
@pytest.mark.parametrize("count", [1, 31, 33, 1700])
async def test_batches_of_any_size_take_effect_whole(store: Store, ledger_file: LedgerFile, count: int) -> None:
    applied = await store.apply(turns(*(record(f"t{number}", finished_at=number + 1) for number in range(count))))
    assert applied.ended == {f"t{number}" for number in range(count)}
    names = ("tasks", "messages", "transfers", "postings")
    told = [ledger_file.rows(f"SELECT count(*) FROM {name}")[0][0] for name in names]
    assert told == [count, 2 * count, 2 * count, 4 * count]


async def test_what_a_batch_adds_to_its_contexts_comes_along_with_it(store: Store) -> None:
    await store.apply(turns(record("a", finished_at=2000)))
    applied = await store.apply(turns(record("b", finished_at=3000)), (), ["chat"])
    assert applied.recent == await store.recent_messages(["chat"])
    texts = [HistoryMessage.model_validate_json(text).text for text in applied.recent[0].messages]
    assert texts == ["say a", "ask b", "say b"]


async def test_recent_messages_are_the_newest_oldest_first(store: Store) -> None:
    for number in range(4):
        await store.apply(turns(record(f"t{number}", finished_at=2000 + number)))
    await store.apply(turns(record("other", context_id="side"), record("none", context_id=None)))
    recent = {context.context_id: context for context in await store.recent_messages(["side", "chat", "empty"])}
    said = {name: [HistoryMessage.model_validate_json(text) for text in one.messages] for name, one in recent.items()}
    assert [message.text for message in said["chat"]] == ["say t2", "ask t3", "say t3"]
    assert [(message.role, message.text, message.task_id) for message in said["side"]] == [
        ("user", "ask other", "other"),
        ("agent", "say other", "other"),
    ]
    assert recent["side"].version > recent["chat"].version
    assert set(recent) == {"side", "chat"}


async def test_messages_are_listed_as_they_were_said_and_measured_in_utf8(store: Store) -> None:
    spoken = 'a "quote" \\ and\n\x00\x01\x7f \u2028 é 🎈 </b>'
    await store.apply([Turns(record(), spoken, None)])
    (recent,) = await store.recent_messages(["chat"])
    assert [HistoryMessage.model_validate_json(text).text for text in recent.messages] == [spoken]
    assert recent.size_bytes == len(spoken.encode())


async def test_a_value_that_no_database_takes_is_refused_and_nothing_of_the_batch_stays(
    store: Store, ledger_file: LedgerFile
) -> None:
    with pytest.raises(DatabaseRefused):
        await store.apply(turns(record("good"), record("bad", finished_at=2**70)))
    with pytest.raises(DatabaseRefused):
        await store.apply(turns(record("bad", reason="\ud800")))
    assert ledger_file.rows("SELECT * FROM tasks") == []


@pytest.mark.parametrize("url", ["postgresql://localhost/x", "sqlite://", "sqlite:///:memory:", "mysql+pymysql://u:secret@h/d"])
def test_another_database_than_a_sqlite_file_is_refused(url: str) -> None:
    with pytest.raises(InvalidSettings) as caught:
        Store(Settings(database_url=url))
    assert "secret" not in str(caught.value)


async def test_a_database_that_cannot_be_opened_is_a_coded_error(tmp_path: Any) -> None:
    store = Store(Settings(database_url=f"sqlite:///{tmp_path}/no/such/folder/router.db"))
    with pytest.raises(DatabaseUnavailable):
        await store.open()
    await store.close()
    (tmp_path / "text.db").write_text("no database at all, but long enough to be taken for one" * 50)
    store = Store(Settings(database_url=f"sqlite:///{tmp_path}/text.db"))
    with pytest.raises(DatabaseUnavailable):
        await store.open()
    await store.close()
