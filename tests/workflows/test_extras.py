"""Workflows need no optional package until a node asks a model, a patch is made, or a run is traced."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, STDOUT

import pytest

from tests.support.processes import ROOT, START_S

WITHOUT = """
import sys
for name in ("pydantic_ai", "jsonpatch", "opentelemetry", "opentelemetry.trace"):
    sys.modules[name] = None  # as if it were not installed
from skillstream_schemas.errors import MissingExtra
from skillstream_worker.workflows import *
from tests.workflows.nodes import A, S1, chain, workflow
from tests.workflows.node_of_a_model import Asking
"""


async def run(code: str) -> str:
    """What a Python process prints."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=PIPE, stderr=STDOUT, cwd=ROOT)
    async with asyncio.timeout(START_S):
        output, _ = await process.communicate()
    return output.decode().strip()


async def test_a_worker_without_workflows_loads_none_of_it() -> None:
    code = "import sys, skillstream_worker; print([m for m in sys.modules if 'workflows' in m or 'pydantic_ai' in m])"
    assert await run(code) == "[]"


@pytest.mark.parametrize(
    ("code", "output"),
    [
        ("print(workflow(A, *chain(A, S1))().run({'says': {'S1': ['x']}}).nodes)", "{'A': 'out of A', 'S1': 'x'}"),
        ("workflow(Asking)()", "MissingExtra: missing_extra: agent nodes need pydantic-ai"),
        ("make_patch({}, {'n': 1})", "MissingExtra: missing_extra: JSON Patches need jsonpatch"),
        ("workflow(A)(enable_tracing=True)", "MissingExtra: missing_extra: enable_tracing needs opentelemetry-api"),
    ],
)
async def test_what_is_missing_is_named_where_it_is_needed(code: str, output: str) -> None:
    assert output in (await run(WITHOUT + code)).splitlines()[-1]
