"""What an operator reads in a worker's log: a line that says it, at the level that it deserves."""

from __future__ import annotations

import asyncio
import logging

import pytest

from skillstream import Client
from skillstream_schemas.settings import Settings
from skillstream_worker import Agent, Retry, TaskContext, Worker
from tests.client.bounds import until
from tests.conftest import make_settings
from tests.support.redis_server import RedisServer, valkey_binary

agent = Agent("moody")


@agent.skill("fail")
async def fail(message: str, context: TaskContext) -> str:
    raise ValueError(f"no {message}")


@agent.skill("again")
async def again(message: str, context: TaskContext) -> str:
    if context.attempt == 1:
        raise Retry(delay=0, reason="not yet")
    return "now"


async def test_a_failing_skill_is_a_warning_that_names_the_fault(
    settings: Settings, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    async with Worker([agent], settings):
        task = await client.submit("moody", "fail", "luck")
        assert (await task.result(10)).error == "skill_error"
    (line,) = [record for record in caplog.records if "ValueError" in record.getMessage()]
    assert (line.levelno, line.getMessage()) == (logging.WARNING, f"skill fail at task {task.id} raised ValueError: no luck")
    assert line.exc_info is not None


async def test_a_wanted_retry_is_a_line_without_a_traceback(
    settings: Settings, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        async with Worker([agent], settings):
            task = await client.submit("moody", "again", "")
            assert (await task.result(10)).text == "now"
    (line,) = [record for record in caplog.records if "asks for another attempt" in record.getMessage()]
    assert line.getMessage().endswith("asks for another attempt: not yet")
    assert not [record for record in caplog.records if record.exc_info]


async def test_many_agents_without_a_broker_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    with RedisServer(valkey_binary()) as server:
        settings = make_settings(server.url, patience_s=0.2, announce_s=0.5)
        agents = [Agent(f"a{number}") for number in range(5)]
        for one in agents:
            one.skill("again")(again)
        async with Worker(agents, settings) as worker:
            server.stop()
            lines = caplog.records
            claiming = {f"claiming jobs of {one.name}" for one in agents}
            await until(lambda: claiming <= set(worker._broker.outage._failing))
            assert len([record for record in lines if record.levelno >= logging.WARNING]) == 1
            await asyncio.to_thread(server.start)
            await until(lambda: any("all works again" in record.getMessage() for record in lines), bound_s=10)
