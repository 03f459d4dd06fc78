"""Tries the built wheel with the base dependencies alone, on the oldest and the newest redis-py that we support.

`python -m tests.acceptance.base_install dist` makes an environment for each in a temporary folder, imports what
services import, submits and cancels a task on a real server, and checks that the bare command names its extra.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.redis_server import RedisServer, valkey_binary

_REDIS_VERSIONS = ("redis>=5,<6", "redis>=8,<9")
_ABSENT = ("arq", "hiredis", "typer", "rich", "sqlalchemy")

_PARTS = {"from skillstream_worker import Agent": "worker", "from skillstream_router import Router": "router"}
"""What cannot be imported there, and the extra that its error has to name."""

_TRIAL = """
import asyncio, importlib.util, sys
absent = [name for name in sys.argv[2].split(",") if importlib.util.find_spec(name)]
assert not absent, f"not in the base install: {absent}"
import skillstream_schemas
from skillstream import Client, SyncClient
import redis

async def main():
    async with Client(sys.argv[1]) as client:
        try:
            await client.submit("nobody", "nothing", "x")
        except skillstream_schemas.SkillstreamError as error:
            assert error.code == "unknown_agent", error
        card = skillstream_schemas.AgentCard(name="a", queue="arq:queue:{a}", skills=[{"name": "s"}])
        redis.Redis.from_url(sys.argv[1]).hset("skillstream:agents", "a", card.model_dump_json())
        task = await client.submit("a", "s", "hello")
        canceled = await task.cancel("tried")
        events = [event.type async for event in task.events()]
        assert canceled.state == "canceled" and events == ["status", "status", "final"], events

asyncio.run(main())
with SyncClient(sys.argv[1]) as client:
    assert client.submit("a", "s", "again").cancel().state == "canceled"
print("redis-py", redis.__version__, "ok")
"""


def main(dist: Path) -> None:
    """Tries the wheel in `dist` with each redis-py."""
    (wheel,) = dist.glob("skillstream-*.whl")
    with tempfile.TemporaryDirectory() as folder, RedisServer(valkey_binary()) as server:
        for number, version in enumerate(_REDIS_VERSIONS):
            python = _environment(Path(folder) / str(number), wheel, version)
            subprocess.run([python, "-c", _TRIAL, server.url, ",".join(_ABSENT)], check=True, cwd=folder, timeout=60)
            bare = subprocess.run([python, "-m", "skillstream"], capture_output=True, text=True, cwd=folder, timeout=60)
            assert bare.returncode == 2, bare
            assert "missing_extra" in bare.stderr, bare.stderr
            for statement, extra in _PARTS.items():
                part = subprocess.run([python, "-c", statement], capture_output=True, text=True, cwd=folder, timeout=60)
                assert "missing_extra: " in part.stderr, part.stderr
                assert f"pip install 'skillstream[{extra}]'" in part.stderr, part.stderr


def _environment(folder: Path, wheel: Path, redis_version: str) -> str:
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = str(folder / "bin" / "python")
    quiet = ["--quiet", "--disable-pip-version-check"]
    subprocess.run([python, "-m", "pip", "install", *quiet, str(wheel), redis_version], check=True)
    return python


if __name__ == "__main__":
    main(Path(sys.argv[1]))
