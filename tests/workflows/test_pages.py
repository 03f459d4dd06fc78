"""What README.md and docs/workflows.md show runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pydantic_ai.models.test import TestModel

from skillstream import Client
from skillstream_schemas.settings import Settings
from skillstream_worker import Agent, Worker, workflows
from skillstream_worker.workflows import replace_models
from tests.client.bounds import BOUND_S
from tests.support.documentation import block

ROOT = Path(__file__).parents[2]


async def test_the_workflow_of_the_readme_answers(client: Client, settings: Settings) -> None:
    restore = replace_models(lambda config: TestModel(custom_output_text="High and low water."))
    try:
        names: dict[str, Any] = {"__name__": "readme"}
        exec(block("README.md", "class ChatWorkflow"), names)
        agent: Agent = names["agent"]
        async with Worker([agent], settings):
            final = await (await client.submit("writer", "chat", "What are tides?")).result(BOUND_S)
    finally:
        restore()
    assert (final.state, final.text) == ("completed", "High and low water.")
    assert final.chunks >= 1


def test_the_page_names_what_can_be_imported() -> None:
    page = (ROOT / "docs" / "workflows.md").read_text()
    named = set(re.findall(r"\b(?:[A-Z][a-z]+)*(?:Node|NodeConfig|WorkflowSchema|AgentConfig|ModelProvider)\b", page))
    ours = {name for name in workflows.__all__ if name in page}
    assert {"AgentStreamingNode", "RouterNode", "ConcurrentNode", "NodeConfig", "AgentConfig"} <= ours
    assert named - set(workflows.__all__) == {"CleanNode", "OtherNode"}, "names of the page's own examples"
