"""Events into chat messages: streams that open and close, text that is neither lost nor doubled, whatever the pieces are."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillstream_router.connect.agentverse.answer import MESSAGE_BYTES, PIECE_CHARS, Answer, Content
from skillstream_router.connect.agentverse.identity import stable_uuid
from skillstream_schemas.event import ChunkEvent, FinalEvent, FollowedEvent, ResetEvent, StatusEvent
from skillstream_schemas.ids import EventId
from skillstream_schemas.state import TaskState


def stream_id(number: int) -> UUID:
    return stable_uuid("a task", number)


def chunk(text: str, seq: int = 2) -> ChunkEvent:
    return ChunkEvent(id=EventId(1, seq), at=1, text=text)


def final(text: str, *, chunks: int = 1, state: TaskState = TaskState.COMPLETED, **fields: Any) -> FinalEvent:
    return FinalEvent(id=EventId(1, 99), at=1, state=state, text=text, metadata={}, chunks=chunks, **fields)


def played(*events: FollowedEvent, answer: Answer | None = None) -> list[str]:
    """What each message holds: `start N`, `end N`, `text …`, `metadata …`."""
    answer = answer or Answer(stream_id)
    return [shown(messages) for event in events for messages in answer.take(event)]


def shown(contents: Content) -> str:
    (content,) = contents
    match content.type:
        case "start-stream" | "end-stream":
            numbers = {stream_id(number): number for number in range(9)}
            return f"{content.type.partition('-')[0]} {numbers[content.stream_id]}"
        case "text":
            return f"text {content.text}"
        case _:
            return f"{content.type} {getattr(content, 'metadata', '')}"


def test_pieces_wait_for_their_sentence() -> None:
    said = played(chunk("The ti"), chunk("de. It"), chunk(" rises. And"), final("The tide. It rises. And"))
    assert said == ["start 1", "text The tide. ", "text It rises. ", "text And", "end 1"]


def test_a_piece_without_an_end_is_not_held_back_for_ever() -> None:
    answer = Answer(stream_id)
    words = "word " * (PIECE_CHARS // 5)
    assert played(chunk(words + "and"), answer=answer) == ["start 1", f"text {words}"]
    assert [shown(message) for message in answer.flush()] == ["text and"]
    assert (answer.waits, answer.flush()) == (False, [])


def test_an_attempt_that_goes_on_behind_what_was_said_goes_on_in_its_stream() -> None:
    said = played(chunk("One. Tw"), ResetEvent(attempt=2, keep=7), chunk("o. Three."), final("One. Two. Three."))
    assert said == ["start 1", "text One. ", "text Two. ", "text Three.", "end 1"]


def test_what_waited_and_is_taken_back_was_never_said() -> None:
    said = played(chunk("One. Tw"), ResetEvent(attempt=2, keep=5), chunk("Four."), final("One. Four."))
    assert said == ["start 1", "text One. ", "text Four.", "end 1"]


def test_an_attempt_that_takes_back_what_was_said_gets_another_stream_with_all_of_it() -> None:
    said = played(chunk("One. Two. "), ResetEvent(attempt=2, keep=5), chunk("Three."), final("One. Three."))
    assert said[:3] == ["start 1", "text One. Two. ", "end 1"]
    assert said[3].startswith("metadata")
    assert said[4:] == ["start 2", "text One. ", "text Three.", "end 2"]


def test_a_final_that_says_more_than_came_is_told_in_full() -> None:
    assert played(chunk("One. "), final("One. Two.")) == ["start 1", "text One. ", "text Two.", "end 1"]
    assert played(chunk("One. "), final("Other.")) == ["start 1", "text One. ", "end 1", "start 2", "text Other.", "end 2"]
    assert played(chunk("One. Two"), final("One. ", state=TaskState.CANCELED))[:3] == ["start 1", "text One. ", "end 1"]


def test_an_answer_that_goes_on_from_an_earlier_process_counts_its_streams_on() -> None:
    assert played(chunk("One."), final("One."), answer=Answer(stream_id, 1)) == ["start 2", "text One.", "end 2"]


def test_an_end_without_text_says_why() -> None:
    said = played(final("", chunks=0, state=TaskState.FAILED, error="timeout", reason="too slow"))
    assert said == ["text The task failed: too slow", "metadata {'status': 'failed', 'error': 'timeout', 'reason': 'too slow'}"]
    assert played(final("", chunks=0)) == []


def test_metadata_is_text_only() -> None:
    status = StatusEvent(
        id=EventId(1, 2), at=1, state=TaskState.WORKING, text="On", metadata={"a": {"b": 1}, "c": "d"}, progress=0.25
    )
    (message,) = Answer(stream_id).take(status)
    assert message[0].metadata == {"status": "On", "a": '{"b":1}', "c": "d", "progress": "0.25"}


@pytest.mark.guarantee("G5")
@given(st.lists(st.text(st.sampled_from("ab. \nä👍🏽"), min_size=1, max_size=40), max_size=30), st.randoms(use_true_random=False))
def test_the_pieces_joined_are_the_text(pieces: list[str], chance: Any) -> None:
    answer = Answer(stream_id)
    messages: list[Content] = []
    for place, piece in enumerate(pieces, 2):
        messages += answer.take(chunk(piece, place))
        if chance.random() < 0.2:
            messages += answer.flush()
    messages += answer.take(final("".join(pieces), chunks=len(pieces)))
    contents = [content for message in messages for content in message]
    assert "".join(content.text for content in contents if content.type == "text") == "".join(pieces)
    kinds = [content.type for content in contents if content.type != "text"]
    assert kinds == (["start-stream", "end-stream"] if pieces else [])
    assert all(len(content.text.encode()) <= MESSAGE_BYTES for content in contents if content.type == "text")
