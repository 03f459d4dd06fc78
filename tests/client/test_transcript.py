"""A reader's view of a stream: every event once, in order, or a gap that names its range."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillstream.transcript import Transcript
from skillstream_schemas.errors import StreamGap
from skillstream_schemas.event import ChunkEvent, FinalEvent, HandedBack, ResetEvent, StatusEvent
from skillstream_schemas.ids import SUBMISSION, EventId
from skillstream_schemas.request import TaskRequest
from skillstream_schemas.state import TaskState

TaskEvents = list[StatusEvent | ChunkEvent | FinalEvent]


def submission() -> StatusEvent:
    request = TaskRequest(agent="a", skill="s", message="m")
    return StatusEvent(id=SUBMISSION, at=1, state=TaskState.SUBMITTED, request=request)


def opening(attempt: int, resume_from: int | None = None) -> StatusEvent:
    return StatusEvent(
        id=EventId(attempt, 1),
        at=1,
        state=TaskState.WORKING,
        worker=f"w{attempt}",
        claim=attempt,
        strikes=1,
        resume_from=resume_from,
    )


def chunk(event_id: str, text: str) -> ChunkEvent:
    return ChunkEvent(id=EventId.parse(event_id), at=1, text=text)


def final(event_id: str, text: str, chunks: int) -> FinalEvent:
    return FinalEvent(id=EventId.parse(event_id), at=1, state=TaskState.COMPLETED, text=text, metadata={}, chunks=chunks)


pieces = st.lists(st.text(st.characters(codec="utf-8"), max_size=6), max_size=5)


@st.composite
def streams(draw: st.DrawFn) -> tuple[TaskEvents, str]:
    """A whole stream of one to four attempts that restart or go on, and the text that counts in the end."""
    events: TaskEvents = [submission()]
    text = ""
    for attempt in range(1, draw(st.integers(1, 4)) + 1):
        keep = draw(st.none() | st.integers(0, len(text))) if attempt > 1 else None
        text = text[: keep or 0]
        events.append(opening(attempt, keep))
        seq = 1
        for piece in draw(pieces):
            seq += 1
            events.append(chunk(f"{attempt}-{seq}", piece))
            text += piece
        if draw(st.booleans()):
            events.append(StatusEvent(id=EventId(attempt, seq + 1), at=1, handed_back=HandedBack.DRAIN))
    last = events[-1].id
    events.append(final(f"{last.attempt}-{last.seq + 1}", text, 1))
    return events, text


@given(streams(), st.data())
@pytest.mark.guarantee("G3")
def test_every_event_once_in_order_whatever_is_delivered_twice(stream: tuple[TaskEvents, str], data: st.DataObject) -> None:
    events, text = stream
    transcript = Transcript("t")
    seen: list[EventId] = []
    for place, event in enumerate(events):
        again = events[data.draw(st.integers(0, place)) : place]
        for one in [*again, event]:
            seen += [followed.id for followed in transcript.take(one) if not isinstance(followed, ResetEvent)]
    assert seen == [event.id for event in events]
    assert transcript.text == text
    assert transcript.final is events[-1]


@given(streams(), st.data())
@pytest.mark.guarantee("G3")
def test_a_missing_event_is_a_gap_that_names_its_range(stream: tuple[TaskEvents, str], data: st.DataObject) -> None:
    events, _ = stream
    place = data.draw(st.integers(0, len(events) - 2))
    before = events[place - 1].id if place else EventId(0, 0)
    transcript = Transcript("t")
    for event in events[:place]:
        transcript.take(event)
    following = events[place + 1]
    if following.id.seq == 1:  # the end of an attempt is not known to a reader: the next opening may follow any entry
        transcript.take(following)
        return
    with pytest.raises(StreamGap) as raised:
        transcript.take(following)
    assert (raised.value.task_id, raised.value.after, raised.value.before) == ("t", str(before), str(following.id))
    assert transcript.cursor == before


@given(streams())
@pytest.mark.guarantee("G5")
def test_resets_and_chunks_alone_rebuild_the_text(stream: tuple[TaskEvents, str]) -> None:
    events, text = stream
    transcript = Transcript("t")
    built = ""
    for event in events:
        for followed in transcript.take(event):
            match followed:
                case ResetEvent(keep=keep):
                    built = built[:keep]
                case ChunkEvent(text=str() as piece):
                    built += piece
                case _:
                    pass
    assert built == text


def test_a_reset_stands_before_the_opening_that_makes_it() -> None:
    transcript = Transcript("t")
    for event in (submission(), opening(1), chunk("1-2", "abc")):
        transcript.take(event)
    assert transcript.take(opening(2, 2)) == [ResetEvent(attempt=2, keep=2), opening(2, 2)]
    assert (transcript.text, transcript.keep, transcript.last_worker) == ("ab", 2, "w2")


def test_structured_chunks_are_no_text() -> None:
    transcript = Transcript("t", EventId(1, 1))
    transcript.take(ChunkEvent(id=EventId(1, 2), at=1, data={"x": 1}, mode="snapshot"))
    assert transcript.text == ""


def test_before_any_attempt_nothing_is_kept() -> None:
    transcript = Transcript("t")
    transcript.take(submission())
    assert transcript.keep is None
    transcript.take(opening(1))
    assert transcript.keep == 0
