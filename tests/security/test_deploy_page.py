"""What deploy/README.md says to do, done."""

from __future__ import annotations

import asyncio
import re
import subprocess
from pathlib import Path
from typing import Any, cast

import arq
import pytest
import redis

from skillstream_schemas import job as arq_job
from skillstream_schemas import keys as arq_keys
from skillstream_worker import Worker
from skillstream_worker.arq_connection import arq_redis_settings
from tests.support.redis_server import RedisServer, valkey_binary
from tests.support.verbs import AGENT, BOUND_S, Gates, verb_agent

from .conftest import SettingsOf
from .roles import ROLES

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "deploy" / "README.md").read_text()


def test_the_commands_make_a_file_that_a_server_takes(tmp_path: Path) -> None:
    (commands,) = [
        block for block in re.findall(r"```bash\n(.*?)```", TEXT, re.DOTALL) if "aclfile" not in block and "sed" in block
    ]
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    passwords = {role: f"{role} has $ecrets" for role in ROLES}
    answers = "".join(f"{password}\n" for password in passwords.values())
    subprocess.run(
        ["bash", "-eu", "-c", commands], cwd=tmp_path, input=answers, text=True, check=True, timeout=20, capture_output=True
    )
    file = tmp_path / "users.acl"
    assert file.stat().st_mode & 0o077 == 0
    lines = file.read_text().splitlines()
    assert lines.pop() == "user default off"
    file.write_text("\n".join([*lines, "user default on nopass ~* &* +@all", ""]))  # the server helper asks as this user
    with RedisServer(valkey_binary(), "--aclfile", str(file)) as server:
        for role, password in passwords.items():
            client = redis.Redis(port=server.port, username=role, password=password)
            with pytest.raises(redis.exceptions.NoPermissionError):
                client.flushall()
            client.close()


def test_the_table_names_each_role() -> None:
    assert set(re.findall(r"^\| `(\w+)` \| ", TEXT, re.MULTILINE)) == set(ROLES)


@pytest.mark.filterwarnings("ignore:Call to deprecated close:DeprecationWarning")  # by arq itself
async def test_plain_functions_run_with_the_rights_that_it_adds(
    settings_of: SettingsOf, admin: Any, acl_server: RedisServer
) -> None:
    (rule,) = re.findall(r"^ACL SETUSER worker (.*)$", TEXT, re.MULTILINE)
    admin.execute_command("ACL", "SETUSER", "worker", *re.findall(r"\(.*?\)|\S+", rule))
    settings = settings_of("worker")
    ticked = asyncio.Event()
    agent = verb_agent(Gates())

    async def double(context: dict[Any, Any], number: int) -> int:
        if context["job_try"] == 1:
            raise arq.Retry(0.01)
        return number * 2

    async def tick(context: dict[Any, Any]) -> None:
        ticked.set()

    agent.functions.append(arq.func(cast(Any, double), name="double"))
    agent.cron_jobs.append(arq.cron(cast(Any, tick), name="tick", second=set(range(60)), run_at_startup=True))
    try:
        async with Worker([agent], settings):
            pool = await arq.create_pool(
                arq_redis_settings(settings), job_serializer=arq_job.pack, job_deserializer=arq_job.unpack,
                default_queue_name=arq_keys.plain_queue(AGENT),
            )  # fmt: skip
            job = await pool.enqueue_job("double", 21)
            assert job is not None
            assert await job.result(timeout=BOUND_S, poll_delay=0.05) == 42
            await asyncio.wait_for(ticked.wait(), BOUND_S)
            await pool.aclose()
        denied = [entry["object"] for entry in admin.acl_log()]
        assert denied == []
    finally:
        admin.execute_command("ACL", "LOAD")
        admin.flushall()
