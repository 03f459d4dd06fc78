"""The streaming examples in real worker processes: what each skill puts on its stream, entry by entry."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from typing import Any

import pytest
import redis

from examples.streaming_skills import agent as streamer
from skillstream import Client
from skillstream_schemas.event import ChunkEvent, FinalEvent, StatusEvent
from skillstream_schemas.request import HistoryMessage
from skillstream_schemas.settings import Settings
from skillstream_schemas.state import TaskState
from skillstream_worker.workflows import apply_patch
from tests.conftest import make_settings
from tests.support.leaks import check_no_leaks
from tests.support.processes import Process

BOUND_S = 10
READY_S = 30.0
QUESTION = "What makes the tides of the sea rise and fall"
AGENTS = ("examples.streaming_skills:agent", *(f"examples.offline_models:{name}" for name in ("writer", "thinker", "panel")))


@pytest.fixture(scope="module")
def workers(server_url: str) -> Iterator[Settings]:
    """Two worker processes with the agents of all examples, on an emptied server; they end in order."""
    settings = make_settings(server_url)
    env = {"SKILLSTREAM_REDIS_URL": server_url, "SKILLSTREAM_SHARDS": str(settings.shards), "SKILLSTREAM_POLL_S": "0.2"}
    outside: redis.Redis = redis.Redis.from_url(server_url, decode_responses=True, protocol=2)
    outside.flushall()
    with Process("worker", *AGENTS, env=env) as first, Process("worker", *AGENTS, env=env) as second:
        for process in (first, second):
            process.wait_for("is ready", READY_S)
        yield settings
        for process in (first, second):
            process.send(signal.SIGTERM)
        assert [process.wait() for process in (first, second)] == [0, 0]
    check_no_leaks(outside)
    outside.close()


@pytest.fixture
async def client(workers: Settings) -> AsyncIterator[Client]:
    """A client beside those workers."""
    async with Client(settings=workers) as opened:
        yield opened


class Played:
    """Responsible for one task of an example, and its events as words."""

    def __init__(self, events: list[Any]) -> None:
        self.events = events
        self.final: FinalEvent = events[-1]

    @property
    def shape(self) -> list[str]:
        """One word an event, neighbouring text chunks as one: what is merged into one entry is a matter of time."""
        words: list[str] = []
        for event in self.events:
            match event:
                case StatusEvent(text=str(text)):
                    words.append(f"status {text}")
                case StatusEvent():
                    words.append(str(event.state))
                case ChunkEvent(text=str(text)) if words[-1].startswith("text "):
                    words[-1] += text
                case ChunkEvent(text=str(text)):
                    words.append(f"text {text}")
                case ChunkEvent():
                    words.append(str(event.mode))
                case FinalEvent():
                    words.append(f"final {event.state}")
        return words

    @property
    def data(self) -> list[Any]:
        """What the structured chunks carry."""
        return [event.data for event in self.events if isinstance(event, ChunkEvent) and event.mode is not None]

    def check(self) -> None:
        """What holds for every task: dense ids, one final, its text is that of the chunks."""
        assert [event.id.seq for event in self.events[1:]] == list(range(1, len(self.events)))
        assert [isinstance(event, FinalEvent) for event in self.events] == [False] * (len(self.events) - 1) + [True]
        text = "".join(event.text for event in self.events if isinstance(event, ChunkEvent) and event.text)
        assert self.final.chunks == 0 or text == self.final.text


async def play(client: Client, agent: str, skill: str, message: str, **options: Any) -> Played:
    """Runs a task to its final."""
    task = await client.submit(agent, skill, message, **options)
    await task.result(BOUND_S)
    played = Played([event async for event in task.events()])
    played.check()
    return played


@pytest.mark.parametrize(
    ("skill", "message", "shape"),
    [
        ("analyze", "rain and rain and sun", [
            "text Counting...\n* rain comes 2 times\n* and comes 2 times\nDone.",
        ]),
        ("report", "long longer longest", ["text # Words\n\n## Count\n3 words\n\n## Longest\nlongest"]),
        ("process", "c a b", [
            "status Reading", "status Sorting, step 1 of 2", "status Counting, step 2 of 2", "text 3 words, from 'a' to 'c'",
        ]),
        ("answer", "one two", []),
        ("stream", "x", ["text first second"]),
        ("stream-said", "x", ["text first second"]),
        ("research", "tides", [
            "status Looking at the shelves", "status 2 titles found", "text # tides\n\n",
            "status Reading 1 of 2", "text ## Moon and sea\n3 words\n\n",
            "status Reading 2 of 2", "text ## Harbour tables\n2 words\n\n## Sum\n5 words",
        ]),
    ],
)  # fmt: skip
async def test_skills_that_complete(skill: str, message: str, shape: list[str], client: Client) -> None:
    played = await play(client, "streamer", skill, message)
    assert played.shape == ["submitted", "working", *shape, "final completed"]
    assert (played.final.metadata["agentId"], played.final.metadata["agentName"]) == ("streamer", "streamer")


async def test_the_text_of_a_skill_that_returns_is_in_the_final_alone(client: Client) -> None:
    final = (await play(client, "streamer", "answer", "one two three")).final
    assert (final.text, final.chunks) == ("3 words", 0)


async def test_a_draft_asks_back_with_what_was_yielded(client: Client) -> None:
    played = await play(client, "streamer", "draft", "one two")
    assert played.shape[2:] == ["text Proposal:\n\n2 words\n\nKeep it?", "final input-required"]
    assert played.final.text == "Proposal:\n\n2 words\n\nKeep it?"
    assert played.final.metadata["version"] == 1


async def test_research_ends_with_its_metadata_and_without_its_reports(client: Client) -> None:
    final = (await play(client, "streamer", "research", "rain")).final
    assert final.text == "# rain\n\n## Clouds\n1 words\n\n## Sum\n1 words"
    assert (final.metadata["titles"], final.metadata["shelves"]) == (1, ["tides", "rain"])


def test_what_streams_is_seen_and_the_price_is_kept() -> None:
    cards = {card.name: card for card in streamer.card.skills}
    assert {name for name, card in cards.items() if not card.streaming} == {"answer"}
    assert {name: card.price_micros for name, card in cards.items() if card.price_micros} == {"research": 50_000}


async def test_the_text_of_a_model_streams(client: Client) -> None:
    played = await play(client, "writer", "chat", QUESTION)
    assert played.shape == ["submitted", "working", f"text Question 1: {QUESTION}", "final completed"]
    assert played.final.chunks >= 1
    assert played.final.usage is not None
    assert played.final.usage["requests"] == 1


async def test_the_model_is_told_what_was_said_before(client: Client) -> None:
    history = [HistoryMessage(role="user", text="first"), HistoryMessage(role="agent", text="Question 1: first")]
    assert (await play(client, "writer", "chat", "second", history=history)).final.text == "Question 2: second"


async def test_a_chat_request_can_be_the_data(client: Client) -> None:
    data = {"messages": [{"role": "user", "content": "from the data"}]}
    assert (await play(client, "writer", "chat", "", data=data)).final.text == "Question 1: from the data"


async def test_structured_output_streams_in_snapshots(client: Client) -> None:
    played = await play(client, "thinker", "think", QUESTION)
    whole = {"thinking": f"thinking about {QUESTION}", "reply": f"reply about {QUESTION}"}
    assert set(played.shape[2:-1]) == {"snapshot"}
    assert played.data[-1] == played.final.data == whole
    for before, after in pairwise(played.data):
        assert all(after[name].startswith(before[name]) for name in whole)
    assert played.final.text == ""


async def test_structured_output_streams_in_patches(client: Client) -> None:
    played = await play(client, "thinker", "think-patched", QUESTION)
    assert played.shape[2] == "snapshot"
    data = None
    for event in played.events:
        if isinstance(event, ChunkEvent):
            data = event.data if event.mode == "snapshot" else apply_patch(data, event.data)  # type: ignore[arg-type]
    assert data == played.final.data == {"thinking": f"thinking about {QUESTION}", "reply": f"reply about {QUESTION}"}


async def test_a_workflow_of_plain_and_streaming_nodes(client: Client) -> None:
    played = await play(client, "panel", "ask", f"  {QUESTION} ")
    answer = f"Question 1: {QUESTION}"
    assert played.final.text == f"{answer}\n\n{answer}"
    assert played.final.metadata["characters"] == {"ShortNode": len(answer), "LongNode": len(answer)}
    turns = [event.metadata for event in played.events if isinstance(event, StatusEvent) and event.metadata]
    assert [turn["node"] for turn in turns if "ahead" not in turn] in (["ShortNode", "LongNode"], ["LongNode", "ShortNode"])
    assert (played.final.state, played.final.data) == (TaskState.COMPLETED, None)


async def test_a_workflow_whose_router_goes_another_way(client: Client) -> None:
    played = await play(client, "panel", "ask", "   ")
    assert played.shape == ["submitted", "working", "final completed"]
    assert (played.final.text, played.final.chunks) == ("Nothing was asked.", 0)
