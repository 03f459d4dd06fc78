"""The hub's streaming examples as frames: what a hub sees of each kind of yield, in order."""

from __future__ import annotations

import pytest

from examples.hub_streaming import agent
from skillstream_router.connect.hub import HubConnector
from skillstream_schemas.settings import Settings
from skillstream_worker import Worker
from tests.connect.conftest import QUICK
from tests.connect.stub_hub import StubHub, text_of

TEXT = "The tide rises. The tide falls.\n\nThe moon pulls it."
FOUND = ["10 words, 7 of them different", "3 sentences", "most used: the (3)"]


@pytest.mark.parametrize(
    ("skill", "shown", "text", "state", "own_metadata"),
    [
        (
            "analyze",
            ["Reading...\n", *(f"- {found}\n" for found in FOUND), "\nThat is all."],
            "Reading...\n" + "".join(f"- {found}\n" for found in FOUND) + "\nThat is all.",
            "completed",
            {},
        ),
        (
            "process",
            ["Step 1...", "Step 2...", "Step 3...", "Results:\n" + "\n".join(FOUND)],
            "Results:\n" + "\n".join(FOUND),
            "completed",
            {},
        ),
        (
            "draft",
            ["A draft:\n\n", "The Tide Rises. The Tide Falls.", "\n\nShall I keep it?"],
            "A draft:\n\nThe Tide Rises. The Tide Falls.\n\nShall I keep it?",
            "input-required",
            {"draft_version": 1},
        ),
        (
            "research",
            ["Looking for paragraphs...", "# 2 paragraphs\n\n", "Reading 1 of 2...",
             "## The tide rises. The tide falls.\n6 words\n\n", "Reading 2 of 2...", "## The moon pulls it.\n4 words\n\n"],
            "# 2 paragraphs\n\n## The tide rises. The tide falls.\n6 words\n\n## The moon pulls it.\n4 words\n\n",
            "completed",
            {"paragraphs": 2},
        ),
        ("answer", [], "51 characters.", "completed", {}),
    ],
    ids=["analyze", "process", "draft", "research", "answer"],
)  # fmt: skip
async def test_a_hub_sees_the_sequence(
    settings: Settings, skill: str, shown: list[str], text: str, state: str, own_metadata: dict[str, int]
) -> None:
    worker = Worker([agent], settings, name="w1")
    await worker.start()
    try:
        async with StubHub() as hub, HubConnector(hub.address, [f"streamer/{skill}"], settings, pace=QUICK):
            await hub.execute("t1", TEXT)
            done = await hub.completed("t1")
    finally:
        await worker.stop(grace_s=0)
    told = [text_of(call["params"]) for call in hub.received("task.status")]
    assert "".join(told) == "".join(shown)
    assert [each for each in told if each.endswith("...")] == [each for each in shown if each.endswith("...")]
    assert (done["status"]["state"], text_of(done), done["final"]) == (state, text, True)
    assert done["metadata"] == {"agentId": "streamer", "agentName": "streamer", **own_metadata}
