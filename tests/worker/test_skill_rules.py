"""What a skill yields or returns, and what of it stands on the stream."""

from __future__ import annotations

import json
from typing import Any

import pytest

from skillstream_worker import Agent, Chunking, Worker
from tests.support.verbs import Gates, verb_agent

from .conftest import Play, StartWorker
from .view import View

pytestmark = [pytest.mark.fake, pytest.mark.usefixtures("worker")]


async def test_strings_are_shown_and_accumulated_word_for_word(play: Play, view: View) -> None:
    text = ["# Report\n\n", "  ", "Zwei Füße: 🦶🏽🦶🏽\r\n", "\0tab\t", "end"]
    task = await play(*(["say", piece] for piece in text))
    final = view.final(task.id)
    assert final["text"] == "".join(text)
    assert final["state"] == "completed"
    assert "".join(view.texts(task.id)) == "".join(text)
    assert final["chunks"] == str(len(view.texts(task.id)))


async def test_the_example_of_the_rules(play: Play, view: View) -> None:
    task = await play(["say", "Starting analysis...\n"], ["say", "- Insight 1\n"])
    assert view.shape(task.id)[:2] == ["submitted", "working"]
    assert view.shape(task.id)[2].startswith("chunk Starting analysis...\n")  # what comes while it is written may stand beside it
    assert view.final(task.id)["text"] == "Starting analysis...\n- Insight 1\n"


async def test_without_merging_each_yield_is_an_entry(play: Play, view: View, gates: Gates, start_worker: StartWorker) -> None:
    await start_worker(verb_agent(gates, "unmerged", chunking=Chunking.off()))
    task = await play(["say", "a"], ["say", "b"], ["say", "c"], agent="unmerged")
    assert view.shape(task.id)[2:] == ["chunk a", "chunk b", "chunk c", "final completed"]
    assert view.final(task.id)["chunks"] == "3"


async def test_a_working_response_is_shown_and_not_accumulated(play: Play, view: View) -> None:
    working = {"text": "Loading", "status": "working", "progress": 0.25, "metadata": {"step": 1}}
    task = await play(["say", "before "], ["respond", working], ["say", "after"])
    (_, status), *_ = [entry for entry in view.entries(task.id) if entry[1].get("text") == "Loading"]
    assert status.pop("at")
    assert status == {"type": "status", "state": "working", "text": "Loading", "progress": "0.25", "metadata": '{"step":1}'}
    assert view.final(task.id)["text"] == "before after"


async def test_progress_stands_behind_the_text_before_it(play: Play, view: View) -> None:
    task = await play(["say", "a"], ["say", "b"], ["progress", "p", 0.5], ["say", "c"])
    words = view.shape(task.id)
    at = words.index("status p")
    assert "".join(word.removeprefix("chunk ") for word in words[2:at]) == "ab"


async def test_context_status_is_a_working_response(play: Play, view: View) -> None:
    task = await play(["status", "Searching", 0.5, {"k": "ü"}], ["say", "found"])
    fields = dict(view.entries(task.id))["1-2"]
    assert (fields["type"], fields["text"], fields["progress"], fields["metadata"]) == ("status", "Searching", "0.5", '{"k":"ü"}')
    assert view.final(task.id)["text"] == "found"


async def test_the_last_response_gives_state_and_metadata_not_text(play: Play, view: View) -> None:
    last = {"status": "input-required", "metadata": {"draft_version": 1}, "text": "not this"}
    task = await play(["say", "a draft"], ["respond", last])
    final = view.final(task.id)
    assert (final["state"], final["text"]) == ("input-required", "a draft")
    assert view.metadata(task.id) == {"draft_version": 1, "agentId": "verbs", "agentName": "verbs"}


@pytest.mark.parametrize("state", ["completed", "failed", "canceled", "input-required"])
async def test_the_text_of_a_response_counts_where_nothing_was_accumulated(play: Play, view: View, state: str) -> None:
    task = await play(["progress", "thinking"], ["respond", {"status": state, "text": "own text"}])
    final = view.final(task.id)
    assert (final["state"], final["text"], final["chunks"]) == (state, "own text", "0")


async def test_the_default_state_of_a_response_is_completed(play: Play, view: View) -> None:
    task = await play(["say", "x"], ["respond", {"metadata": {"n": 1}}])
    assert view.final(task.id)["state"] == "completed"


async def test_a_skill_cannot_pass_for_another_agent(play: Play, view: View) -> None:
    task = await play(["respond", {"metadata": {"agentId": "other", "agentName": "other", "n": 1}}])
    assert view.metadata(task.id) == {"agentId": "verbs", "agentName": "verbs", "n": 1}


@pytest.mark.guarantee("G2")
async def test_nothing_is_published_behind_a_final_response(play: Play, view: View, gates: Gates) -> None:
    task = await play(["say", "kept"], ["respond", {}], ["say", "lost"], ["reach", "went on"])
    assert view.shape(task.id) == ["submitted", "working", "chunk kept", "final completed"]
    assert view.final(task.id)["text"] == "kept"
    assert gates.closed == [1]
    assert gates.endings == ["GeneratorExit"]


async def test_empty_strings_are_skipped(play: Play, view: View) -> None:
    task = await play(["say", ""], ["say", "a"], ["say", ""])
    assert view.shape(task.id) == ["submitted", "working", "chunk a", "final completed"]


async def test_a_skill_that_yields_nothing_completes_without_text(play: Play, view: View) -> None:
    task = await play()
    final = view.final(task.id)
    assert (final["state"], final["text"], final["chunks"]) == ("completed", "", "0")


@pytest.mark.parametrize(("piece", "kind"), [(5, "int"), (None, "NoneType"), (["a"], "list"), (1.5, "float"), (True, "bool")])
async def test_a_wrong_piece_fails_the_task_and_keeps_the_text(
    play: Play, view: View, gates: Gates, piece: Any, kind: str
) -> None:
    task = await play(["say", "partial"], ["yield", piece], ["say", "lost"])
    final = view.final(task.id)
    assert (final["state"], final["error"], final["text"]) == ("failed", "skill_error", "partial")
    assert final["reason"].startswith("TypeError: ")
    assert final["reason"].endswith(f"not {kind}")
    assert gates.endings == ["GeneratorExit"]


@pytest.mark.parametrize("name", ["ValueError", "SystemExit", "TimeoutError", "Halt"])
async def test_an_exception_fails_the_task_and_keeps_the_text(play: Play, view: View, name: str) -> None:
    task = await play(["say", "partial "], ["say", "text"], ["raise", name, "boom"])
    final = view.final(task.id)
    assert (final["state"], final["error"], final["text"]) == ("failed", "skill_error", "partial text")
    assert final["reason"] == f"{name}: boom"
    assert "".join(view.texts(task.id)) == "partial text"


@pytest.mark.parametrize(
    "fields",
    [
        {"status": "submitted"}, {"status": "done"}, {"status": "working", "progress": 2}, {"status": "working", "progress": "x"},
        {"text": None}, {"text": 0}, {"text": ["x"]}, {"metadata": ["x"]}, {"metadata": 5}, {"status": "working", "text": None},
    ],
)  # fmt: skip
async def test_a_response_that_cannot_be_is_an_error_of_the_skill(play: Play, view: View, fields: dict[str, Any]) -> None:
    task = await play(["respond", fields])
    final = view.final(task.id)
    assert (final["state"], final["error"]) == ("failed", "skill_error")
    assert final["reason"].startswith(("ValueError: ", "TypeError: "))


async def test_text_that_is_no_unicode_is_an_error_of_the_skill(play: Play, view: View) -> None:
    task = await play(["say", "good"], ["say", "\ud800"])
    final = view.final(task.id)
    assert (final["error"], final["text"]) == ("skill_error", "good")
    assert final["reason"].startswith("UnicodeEncodeError: ")


@pytest.mark.parametrize("metadata", [{"x": float("nan")}, {"x": "\ud800"}, ["x"], "x", 5])
async def test_metadata_that_cannot_be_written_is_an_error_of_the_skill(play: Play, view: View, metadata: Any) -> None:
    task = await play(["say", "text"], ["respond", {"metadata": metadata}])
    final = view.final(task.id)
    assert (final["state"], final["error"], final["text"]) == ("failed", "skill_error", "text")


async def test_models_and_dicts_are_snapshots_and_the_last_one_is_the_data(play: Play, view: View) -> None:
    task = await play(["snapshot", {"title": "A"}], ["book", "Ä", 300])
    assert view.shape(task.id)[2:] == ['snapshot {"title":"A"}', 'snapshot {"title":"Ä","pages":300}', "final completed"]
    final = view.final(task.id)
    assert json.loads(final["data"]) == {"title": "Ä", "pages": 300}
    assert (final["text"], final["chunks"]) == ("", "0")  # text chunks are counted


@pytest.mark.guarantee("G5")
async def test_own_text_behind_snapshots_is_the_text(play: Play, view: View) -> None:
    task = await play(["snapshot", {"n": 1}], ["respond", {"text": "own"}])
    final = view.final(task.id)
    assert (final["text"], final["data"], final["chunks"]) == ("own", '{"n":1}', "0")
    assert "".join([text async for text in task.text()]) == "own"


async def test_snapshots_stand_beside_text(play: Play, view: View) -> None:
    task = await play(["say", "words"], ["snapshot", {"n": 1}], ["respond", {"metadata": {"m": 2}}])
    final = view.final(task.id)
    assert (final["text"], final["data"]) == ("words", '{"n":1}')
    assert view.metadata(task.id)["m"] == 2


async def test_usage_adds_up_in_the_final(play: Play, view: View) -> None:
    task = await play(["usage", {"input_tokens": 3}], ["usage", {"input_tokens": 4, "cost": 0.5}], ["say", "x"])
    assert json.loads(view.final(task.id)["usage"]) == {"input_tokens": 7, "cost": 0.5}


async def test_usage_is_kept_where_the_skill_fails(play: Play, view: View) -> None:
    task = await play(["usage", {"input_tokens": 3}], ["raise", "ValueError", "x"])
    assert json.loads(view.final(task.id)["usage"]) == {"input_tokens": 3}


async def test_usage_that_is_no_number_is_an_error_of_the_skill(play: Play, view: View) -> None:
    task = await play(["usage", {"tokens": float("inf")}])
    assert view.final(task.id)["reason"] == "ValueError: usage tokens=inf is not a finite number"


@pytest.mark.parametrize(
    ("verb", "text", "data", "metadata"),
    [
        (["say", "The answer is 42"], "The answer is 42", None, {}),
        (["say", ""], "", None, {}),
        (["respond", {"text": "hm?", "metadata": {"n": 1}}], "hm?", None, {"n": 1}),
        (["snapshot", {"n": 1}], "", {"n": 1}, {}),
        (["book", "A", 3], "", {"title": "A", "pages": 3}, {}),
        (["reach", "end"], "", None, {}),
    ],
)
async def test_a_skill_that_returns_has_only_a_final(
    play: Play, view: View, verb: list[Any], text: str, data: Any, metadata: dict[str, Any]
) -> None:
    task = await play(verb, skill="plain")
    assert view.shape(task.id) == ["submitted", "working", "final completed"]
    final = view.final(task.id)
    assert (final["text"], final["chunks"]) == (text, "0")
    assert json.loads(final.get("data", "null")) == data
    assert view.metadata(task.id) == {"agentId": "verbs", "agentName": "verbs", **metadata}


async def test_a_returned_response_sets_the_state(play: Play, view: View) -> None:
    task = await play(["respond", {"status": "input-required", "text": "Which one?"}], skill="plain")
    final = view.final(task.id)
    assert (final["state"], final["text"]) == ("input-required", "Which one?")


@pytest.mark.parametrize("verb", [["yield", 5], ["progress", "on it"], ["yield", ["a"]]])
async def test_a_wrong_return_is_an_error_of_the_skill(play: Play, view: View, verb: list[Any]) -> None:
    task = await play(verb, skill="plain")
    final = view.final(task.id)
    assert (final["state"], final["error"]) == ("failed", "skill_error")
    assert final["reason"].startswith("TypeError: ")


async def test_a_skill_that_returns_may_report_progress(play: Play, view: View) -> None:
    task = await play(["status", "Searching"], ["say", "found"], skill="plain")
    assert view.shape(task.id) == ["submitted", "working", "status Searching", "final completed"]
    assert view.final(task.id)["text"] == "found"


async def test_the_context_tells_who_asks_for_what(play: Play, gates: Gates, worker: Worker, agent: Agent) -> None:
    task = await play(
        ["say", "x"], context_id="chat-9", payer="acme", sender_id="user-1", metadata={"lang": "de"}, data=[1], task_id="t1"
    )
    (context,) = gates.contexts
    assert (context.task_id, context.agent, context.skill_name, context.attempt) == (task.id, agent.name, "stream", 1)
    assert (context.context_id, context.session_id, context.payer, context.sender_id) == ("chat-9", "chat-9", "acme", "user-1")
    assert (context.metadata, context.data, context.partial_text) == ({"lang": "de"}, [1], "")
    assert (context.conversation_history, context.deadline, context.cancelled.is_set()) == ([], None, False)
    assert context.log.extra == {"task_id": "t1", "attempt": 1}


async def test_a_context_without_details_has_none(play: Play, gates: Gates) -> None:
    await play(["say", "x"])
    (context,) = gates.contexts
    assert (context.context_id, context.session_id, context.payer, context.sender_id) == (None, None, None, None)
    assert (context.metadata, context.data) == ({}, None)
