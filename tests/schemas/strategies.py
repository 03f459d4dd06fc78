"""Values for property tests: names, texts, JSON, requests and events of every shape."""

from __future__ import annotations

import string
from typing import Any

from hypothesis import strategies as st

from skillstream_schemas.event import ChunkEvent, FinalEvent, HandedBack, StatusEvent
from skillstream_schemas.ids import SUBMISSION, EventId
from skillstream_schemas.money import MAX_MICROS
from skillstream_schemas.request import MAX_DEADLINE_MS, HistoryMessage, OnRetry, TaskRequest
from skillstream_schemas.state import FINAL_STATES, TaskState

NAME_CHARACTERS = string.ascii_letters + string.digits + "._-"

texts = st.text(st.characters(codec="utf-8"), max_size=60)
labels = st.text(st.characters(codec="utf-8"), min_size=1, max_size=60)
names = st.text(NAME_CHARACTERS, min_size=1, max_size=128).filter(lambda name: name.strip("."))
numbers = st.integers(0, 10**15 - 1)
event_ids = st.builds(EventId, numbers, numbers)
floats = st.floats(allow_nan=False, allow_infinity=False)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | floats | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
json_objects = st.dictionaries(texts, json_values, max_size=4)


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """The values, or None for a field that is absent."""
    return st.none() | values


histories = st.lists(
    st.builds(HistoryMessage, role=st.sampled_from(["user", "agent"]), text=texts, task_id=maybe(names)), max_size=3
).map(tuple)

requests = st.builds(
    TaskRequest,
    agent=names,
    skill=labels,
    message=texts,
    max_attempts=st.integers(1, 1000),
    price_micros=st.integers(0, MAX_MICROS),
    on_retry=st.sampled_from(OnRetry),
    context_id=maybe(names),
    follows=maybe(names),
    payer=maybe(labels),
    sender_id=maybe(labels),
    parent=maybe(names),
    admission=maybe(texts),
    deadline=maybe(st.integers(0, MAX_DEADLINE_MS)),
    metadata=maybe(json_objects),
    history=maybe(histories),
    traceparent=maybe(texts),
    data=json_values,
)

submissions = st.builds(StatusEvent, id=st.just(SUBMISSION), at=numbers, state=st.just(TaskState.SUBMITTED), request=requests)
openings = st.builds(
    StatusEvent,
    id=st.builds(EventId, st.integers(1, 10**6), st.just(1)),
    at=numbers,
    state=st.just(TaskState.WORKING),
    worker=labels,
    claim=numbers,
    strikes=st.integers(0, 1000),
    resume_from=maybe(numbers),
)
later_ids = st.builds(EventId, st.integers(1, 10**6), st.integers(2, 10**6))
hand_backs = st.builds(StatusEvent, id=later_ids, at=numbers, handed_back=st.sampled_from(HandedBack))
progresses = st.builds(
    StatusEvent,
    id=later_ids,
    at=numbers,
    state=st.just(TaskState.WORKING),
    text=texts,
    progress=maybe(st.floats(0, 1)),
    metadata=maybe(json_objects),
)
text_chunks = st.builds(ChunkEvent, id=later_ids, at=numbers, text=texts)
data_chunks = st.builds(ChunkEvent, id=later_ids, at=numbers, data=json_values, mode=st.sampled_from(["snapshot", "delta"]))
finals = st.builds(
    FinalEvent,
    id=later_ids,
    at=numbers,
    state=st.sampled_from(sorted(FINAL_STATES)),
    text=texts,
    data=json_values,
    metadata=json_objects,
    error=maybe(labels),
    reason=maybe(texts),
    usage=maybe(json_objects),
    chunks=st.integers(0, 10**6),
)
events = submissions | openings | hand_backs | progresses | text_chunks | data_chunks | finals
