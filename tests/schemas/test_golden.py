"""Wire version 1, byte for byte: these fields and jobs stand on brokers, so a change of them needs another version."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from skillstream_schemas.event import ChunkEvent, FinalEvent, HandedBack, StatusEvent, event_from_fields
from skillstream_schemas.ids import SUBMISSION, EventId
from skillstream_schemas.job import Job, pack, pack_result, read_job, stub
from skillstream_schemas.request import WIRE_VERSION, HistoryMessage, OnRetry, TaskRequest
from skillstream_schemas.state import TaskState

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parent / "golden_v1.json").read_text())
AT = 1_700_000_000_123
WORKING = TaskState.WORKING
SHORT = TaskRequest(agent="researcher", skill="research", message="Zürich\n{raw} 😀")
FULL = TaskRequest(
    agent="researcher",
    skill="research",
    message="",
    max_attempts=5,
    price_micros=50_000,
    on_retry=OnRetry.RESUME,
    context_id="chat-9",
    follows="task-0",
    payer="acme",
    sender_id="user@host",
    parent="task-p",
    admission="hold-1",
    deadline=AT + 1,
    metadata={"ort": "Zürich", "n": [1, 2.5, None, True]},
    history=(HistoryMessage(role="user", text="hi"), HistoryMessage(role="agent", text="hello", task_id="task-0")),
    traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    data={"form": {"a": 1}},
)
EVENTS: dict[str, StatusEvent | ChunkEvent | FinalEvent] = {
    "submission": StatusEvent(id=SUBMISSION, at=AT, state=TaskState.SUBMITTED, request=SHORT),
    "submission with everything": StatusEvent(id=SUBMISSION, at=AT, state=TaskState.SUBMITTED, request=FULL),
    "opening": StatusEvent(id=EventId(1, 1), at=AT, state=WORKING, worker="host-1", claim=1_700_000_000_123_456, strikes=1),
    "opening that goes on": StatusEvent(
        id=EventId(2, 1), at=AT, state=WORKING, worker="host-2", claim=1_700_000_000_123_457, strikes=2, resume_from=17
    ),
    "hand-back of a drain": StatusEvent(id=EventId(1, 5), at=AT, handed_back=HandedBack.DRAIN),
    "hand-back to retry": StatusEvent(id=EventId(1, 5), at=AT, handed_back=HandedBack.RETRY),
    "progress": StatusEvent(id=EventId(1, 2), at=AT, state=WORKING, text="Searching…", progress=0.1, metadata={"step": 1}),
    "text chunk": ChunkEvent(id=EventId(1, 3), at=AT, text=" # Title\n\n"),
    "snapshot": ChunkEvent(id=EventId(1, 4), at=AT, data={"titel": "Ä", "parts": []}, mode="snapshot"),
    "delta of null": ChunkEvent(id=EventId(1, 5), at=AT, data=None, mode="delta"),
    "final": FinalEvent(id=EventId(1, 6), at=AT, state=TaskState.COMPLETED, text="done", metadata={}, chunks=0),
    "final with everything": FinalEvent(
        id=EventId(3, 2),
        at=AT,
        state=TaskState.FAILED,
        text="half an ans",
        data=[1, {"x": None}],
        metadata={"agentId": "researcher", "agentName": "researcher", "sources": 2},
        error="skill_error",
        reason="ValueError: no sources",
        usage={"tokens": 12},
        chunks=3,
    ),
}
REQUEST = {"agent": "researcher", "skill": "research", "message": "quantum", "metadata": {"n": 1}}


def test_the_wire_version_is_that_of_the_golden_file() -> None:
    assert GOLDEN["version"] == WIRE_VERSION
    assert set(GOLDEN["entries"]) == set(EVENTS)


@pytest.mark.parametrize("name", EVENTS)
def test_entries_are_written_as_ever(name: str) -> None:
    event = EVENTS[name]
    golden = GOLDEN["entries"][name]
    assert str(event.id) == golden["id"]
    assert list(event.to_fields().items()) == list(golden["fields"].items())


@pytest.mark.parametrize("name", EVENTS)
def test_entries_written_before_are_read(name: str) -> None:
    golden = GOLDEN["entries"][name]
    assert event_from_fields(EventId.parse(golden["id"]), golden["fields"]) == EVENTS[name]


def test_our_job_is_written_as_ever() -> None:
    assert stub(AT).hex() == GOLDEN["jobs"]["stub"]
    assert read_job(bytes.fromhex(GOLDEN["jobs"]["stub"])) == Job("run_skill", None, AT)


def test_a_stock_clients_job_is_read_as_ever() -> None:
    data = bytes.fromhex(GOLDEN["jobs"]["stock"])
    assert pack({"t": None, "f": "run_skill", "a": [REQUEST], "k": {}, "et": AT}) == data
    assert read_job(data) == Job("run_skill", REQUEST, AT)


def test_a_result_is_written_as_ever() -> None:
    data = pack_result(
        Job("run_skill", REQUEST, AT),
        "researcher",
        "task-1",
        attempt=1,
        final={"state": "completed", "text": "done"},
        started_ms=AT + 1,
        finished_ms=AT + 2,
    )
    assert data.hex() == GOLDEN["jobs"]["result"]
