"""What a skill is shown of the turns before."""

from __future__ import annotations

import pytest
import redis

from skillstream import Client
from skillstream_schemas.request import HistoryMessage
from skillstream_schemas.settings import Settings
from skillstream_worker import Worker
from tests.support.verbs import AGENT, BOUND_S, Gates, script

from .conftest import Play
from .view import View

pytestmark = [pytest.mark.fake, pytest.mark.usefixtures("worker")]


class Messages:
    """Responsible for a context's list, as the router writes it."""

    def __init__(self, outside: redis.Redis, settings: Settings) -> None:
        self._outside, self._keys = outside, settings.keys

    def write(self, context_id: str, *messages: HistoryMessage | str) -> None:
        """Appends messages, or raw members."""
        key = self._keys.context_messages(context_id)
        for message in messages:
            self._outside.rpush(key, message if isinstance(message, str) else message.model_dump_json(exclude_none=True))
        self._outside.expire(key, 600)


@pytest.fixture
def messages(outside: redis.Redis, settings: Settings) -> Messages:
    return Messages(outside, settings)


def user(text: str, task_id: str | None = None) -> HistoryMessage:
    return HistoryMessage(role="user", text=text, task_id=task_id)


def answer(text: str, task_id: str | None = None) -> HistoryMessage:
    return HistoryMessage(role="agent", text=text, task_id=task_id)


async def test_the_list_of_the_context_is_the_history(play: Play, messages: Messages, gates: Gates) -> None:
    messages.write("c1", user("hello", "t1"), answer("hi", "t1"))
    messages.write("c2", user("other", "t2"))
    await play(["say", "x"], context_id="c1")
    assert gates.contexts[0].conversation_history == [{"role": "user", "text": "hello"}, {"role": "agent", "text": "hi"}]


async def test_a_message_that_cannot_be_read_is_left_out(play: Play, messages: Messages, gates: Gates) -> None:
    messages.write("c1", user("hello"), "no JSON", '{"role":"system","text":"x"}', answer("hi"))
    await play(["say", "x"], context_id="c1")
    assert [turn["text"] for turn in gates.contexts[0].conversation_history] == ["hello", "hi"]


@pytest.mark.guarantee("G13")
async def test_a_history_that_cannot_be_had_ends_the_task_and_is_named(
    play: Play, outside: redis.Redis, settings: Settings, view: View, gates: Gates
) -> None:
    outside.set(settings.keys.context_messages("c1"), "no list", ex=600)
    task = await play(["say", "x"], context_id="c1")
    final = view.final(task.id)
    assert (final["state"], final["error"], view.ids(task.id)) == ("failed", "context_error", ["0-1", "1-1", "1-2"])
    assert "WRONGTYPE" in final["reason"]
    assert gates.contexts == []


@pytest.mark.guarantee("G13")
async def test_whatever_stops_a_context_from_being_made_is_named(
    play: Play, view: View, gates: Gates, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ValueError("year 10000 is out of range")

    monkeypatch.setattr("skillstream_worker.preparation.TaskContext", broken)
    task = await play(["say", "x"])
    final = view.final(task.id)
    assert (final["error"], final["reason"]) == ("context_error", "ValueError: year 10000 is out of range")
    assert view.ids(task.id) == ["0-1", "1-1", "1-2"]
    assert gates.contexts == []


async def test_without_context_there_is_no_history(play: Play, messages: Messages, gates: Gates) -> None:
    messages.write("c1", user("hello"))
    await play(["say", "x"])
    assert gates.contexts[0].conversation_history == []


async def test_the_turn_just_before_is_known_at_once(client: Client, gates: Gates) -> None:
    conversation = client.conversation(AGENT, context_id="c1")
    first = await conversation.submit("stream", script(["say", "one"]))
    await first.result(BOUND_S)
    second = await conversation.submit("stream", script(["say", "two"]))
    await second.result(BOUND_S)
    assert gates.contexts[1].conversation_history == [
        {"role": "user", "text": script(["say", "one"])},
        {"role": "agent", "text": "one"},
    ]


async def test_a_turn_that_is_on_the_list_already_is_not_shown_twice(client: Client, messages: Messages, gates: Gates) -> None:
    conversation = client.conversation(AGENT, context_id="c1")
    first = await conversation.submit("stream", script(["say", "one"]))
    await first.result(BOUND_S)
    messages.write("c1", user("question", first.id), answer("one", first.id))
    await (await conversation.submit("stream", script(["say", "two"]))).result(BOUND_S)
    assert gates.contexts[1].conversation_history == [{"role": "user", "text": "question"}, {"role": "agent", "text": "one"}]


async def test_a_turn_that_has_not_ended_shows_its_question_alone(client: Client, gates: Gates) -> None:
    conversation = client.conversation(AGENT, context_id="c1")
    first = await conversation.submit("stream", script(["say", "half"], ["reach", "running"], ["wait", "end"]))
    await gates.reached("running")
    await (await conversation.submit("stream", script(["say", "two"]))).result(BOUND_S)
    assert [turn["role"] for turn in gates.contexts[1].conversation_history] == ["user"]
    gates.open("end")
    await first.result(BOUND_S)


async def test_the_history_of_the_request_wins(play: Play, messages: Messages, gates: Gates) -> None:
    messages.write("c1", user("stored"))
    before = await play(["say", "before"], context_id="c1")
    await play(["say", "x"], context_id="c1", follows=before.id, history=[user("brought"), answer("along")])
    assert gates.contexts[1].conversation_history == [{"role": "user", "text": "brought"}, {"role": "agent", "text": "along"}]


async def test_an_empty_history_of_the_request_wins(play: Play, messages: Messages, gates: Gates) -> None:
    messages.write("c1", user("stored"))
    await play(["say", "x"], context_id="c1", history=[])
    assert gates.contexts[0].conversation_history == []


@pytest.mark.parametrize("context_id", ["c1", None])
async def test_words_of_another_context_are_not_shown(play: Play, gates: Gates, context_id: str | None) -> None:
    secret = await play(["say", "secret"], context_id="c2")
    await play(["say", "x"], context_id=context_id, follows=secret.id)
    assert gates.contexts[1].conversation_history == []


async def test_a_turn_whose_stream_is_gone_is_left_out(play: Play, gates: Gates, view: View, worker: Worker) -> None:
    before = await play(["say", "one"], context_id="c1")
    view.redis.delete(before.stream)
    task = await play(["say", "x"], context_id="c1", follows=before.id)
    assert gates.contexts[1].conversation_history == []
    assert view.final(task.id)["state"] == "completed"
