"""The wire contract with nothing but redis-py and the documented scripts: a submitter and a worker that share no code."""

from __future__ import annotations

import asyncio
import shutil
import time
from binascii import crc32
from pathlib import Path
from typing import Any, cast

import pytest
import redis

from skillstream import Client
from skillstream_schemas.card import AgentCard, SkillCard
from skillstream_schemas.settings import Settings
from skillstream_worker import Agent, Worker

ROOT = Path(__file__).parents[2]
CLIENT, WORKER = ROOT / "client/skillstream/lua", ROOT / "worker/skillstream_worker/lua"
WEEK_MS = 604_800_000

agent = Agent("translator")


@agent.skill("shout")
async def shout(message: str, context: object) -> str:
    return message.upper()


def run(server: redis.Redis, script: Path, keys: list[str], arguments: list[Any]) -> Any:
    """Runs a script as any client of any language would."""
    return cast(Any, server.eval(script.read_text(), len(keys), *keys, *arguments))


class Names:
    """The keys of one task, spelled out as the page on the wire format says."""

    def __init__(self, task_id: str, shards: int) -> None:
        n = crc32(task_id.encode()) % shards
        self.events = f"skillstream:task:{{{n}}}:{task_id}:events"
        self.cancel = f"skillstream:task:{{{n}}}:{task_id}:cancel"
        self.inbox = f"skillstream:inbox:{{{n}}}"
        self.queue, self.wake, self.member = (
            "arq:queue:{translator}",
            "skillstream:wake:{translator}",
            f"{{translator}}:{task_id}",
        )
        self.job, self.lease = f"arq:job:{self.member}", f"arq:in-progress:{self.member}"
        self.claims, self.result = f"arq:retry:{self.member}", f"arq:result:{self.member}"


def submit(server: redis.Redis, task_id: str, names: Names, message: str) -> None:
    """The two steps of a submission."""
    request = ["agent", "translator", "skill", "shout", "message", message]
    assert run(server, CLIENT / "submit.lua", [names.inbox, names.events], [task_id, WEEK_MS, len(request), *request]) == [
        ["new"]
    ]
    keys = [names.queue, names.wake, names.job]
    assert run(server, CLIENT / "enqueue.lua", keys, [10_000, 3_600_000, names.member, 0, WEEK_MS]) == [1]


async def test_a_submission_by_scripts_runs_on_our_worker(settings: Settings, outside: redis.Redis) -> None:
    async with Worker([agent], settings), Client(settings=settings) as client:
        submit(outside, "from-anywhere", Names("from-anywhere", settings.shards), "grüß dich")
        final = await client.task("from-anywhere").result(10)
    assert (final.state, final.text) == ("completed", "GRÜSS DICH")


@pytest.mark.skipif(shutil.which("redis-cli") is None, reason="redis-cli is not on PATH; the same scripts run by redis-py above")
async def test_a_submission_by_redis_cli_runs_on_our_worker(settings: Settings, outside: redis.Redis) -> None:
    names, cli = Names("from-shell", settings.shards), ["redis-cli", "-u", settings.redis_url, "--eval"]
    async with Worker([agent], settings), Client(settings=settings) as client:
        request = ["agent", "translator", "skill", "shout", "message", "hello shell"]
        steps = [
            ["submit.lua", names.inbox, names.events, ",", "from-shell", str(WEEK_MS), str(len(request)), *request],
            ["enqueue.lua", names.queue, names.wake, names.job, ",", "10000", "3600000", names.member, "0", str(WEEK_MS)],
        ]
        for script, *rest in steps:
            done = await asyncio.create_subprocess_exec(*cli, str(CLIENT / script), *rest, stdout=asyncio.subprocess.DEVNULL)
            assert await asyncio.wait_for(done.wait(), 10) == 0
        final = await client.task("from-shell").result(10)
    assert final.text == "HELLO SHELL"


@pytest.mark.guarantee("G3", "G8")
async def test_a_worker_by_scripts_runs_a_task_of_our_client(settings: Settings, outside: redis.Redis) -> None:
    card = AgentCard(name="translator", queue="arq:queue:{translator}", skills=(SkillCard(name="shout"),))
    outside.hset("skillstream:agents", "translator", card.model_dump_json())
    async with Client(settings=settings) as client:
        task = await client.submit("translator", "shout", "hi")
        names = Names(task.id, settings.shards)
        keys = [names.queue, names.wake, names.lease, names.job, names.claims]
        arguments = ["other-worker", 15_000, 0, WEEK_MS, "{translator}:", names.member]
        ((member, claim, claims, _payload),) = _binary(settings, WORKER / "claim.lua", keys, arguments)[0]
        assert (member.decode(), claims) == (names.member, 1)
        opened = run(
            outside,
            WORKER / "open.lua",
            [names.events, names.cancel, names.inbox],
            [task.id, "other-worker", claim, WEEK_MS, "translator", "", ""],
        )
        assert opened[:3] == ["opened", 1, 1]
        for seq, text in ((2, "H"), (3, "I")):
            now_ms = int(time.time() * 1000)
            chunk: dict[Any, Any] = {"type": "chunk", "text": text, "at": now_ms}
            added = outside.xadd(names.events, chunk, id=f"1-{seq}", nomkstream=True)
            assert added == f"1-{seq}"
        final = [
            "type",
            "final",
            "state",
            "completed",
            "text",
            "HI",
            "metadata",
            "{}",
            "chunks",
            2,
        ]
        ending = [task.id, claim, "1-3", "1-4", WEEK_MS, *final]
        assert run(outside, WORKER / "finish.lua", [names.events, names.inbox], ending)[:2] == ["ok", "1-4"]
        settle_keys = [names.queue, names.lease, names.job, names.claims, names.result]
        assert run(outside, CLIENT / "settle.lua", settle_keys, [3_600_000, names.member, ""]) == 1
        assert [text async for text in task.text()] == ["H", "I"]
        assert (await task.result(10)).state == "completed"


def _binary(settings: Settings, script: Path, keys: list[str], arguments: list[Any]) -> Any:
    """Runs a script without decoding its answer: a job's payload is msgpack."""
    with redis.Redis.from_url(settings.redis_url, protocol=2) as server:
        return run(server, script, keys, arguments)
