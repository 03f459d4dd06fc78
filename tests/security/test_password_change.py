"""A user whom the broker does not let in: callers hear it at once; workers and routers go on once they are let in again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from skillstream import BrokerAccessDenied, Client
from skillstream.connection import connect
from skillstream_router.app import Router
from skillstream_schemas.settings import Settings
from skillstream_schemas.state import TaskState
from skillstream_worker import Worker
from tests.conftest import make_settings
from tests.router.conftest import QUIET
from tests.router.eventually import eventually
from tests.router.ledger_file import LedgerFile
from tests.support.redis_server import RedisServer
from tests.support.verbs import AGENT, BOUND_S, Gates, script, verb_agent

USER, RIGHT, OTHER = "mover", "first+", "second+"


@pytest.fixture
async def settings(acl_server: RedisServer, admin: Any, tmp_path: Path) -> AsyncIterator[Settings]:
    """Settings of a user that may do all, with a patience that no test lives to see."""
    admin.acl_setuser(USER, enabled=True, reset=True, passwords=[f"+{RIGHT}"], keys=["*"], channels=["*"], categories=["+@all"])
    url = acl_server.url.replace("redis://", f"redis://{USER}:{RIGHT}@")
    yield make_settings(url, database_url=LedgerFile(tmp_path / "router.db").url, patience_s=120)
    admin.acl_deluser(USER)
    admin.flushall()


def change(admin: Any, password: str) -> None:
    """Gives the user another password, and has all connections made again."""
    admin.acl_setuser(USER, enabled=True, reset_passwords=True, passwords=[f"+{password}"])
    admin.execute_command("CLIENT", "KILL", "USER", USER)


async def denied(doing: Any) -> BrokerAccessDenied:
    with pytest.raises(BrokerAccessDenied) as raised:
        await asyncio.wait_for(doing, BOUND_S)
    assert raised.value.code == "broker_access_denied"
    assert RIGHT not in str(raised.value)
    return raised.value


@pytest.mark.parametrize("login", ["", f"{USER}:{OTHER}@", "nobody:x@", f":{RIGHT}@"])
async def test_a_login_that_is_refused_is_no_broker_that_is_away(
    settings: Settings, admin: Any, acl_server: RedisServer, login: str
) -> None:
    url = acl_server.url.replace("redis://", f"redis://{login}")
    admin.acl_setuser("default", reset_passwords=True, passwords=["+default"], nopass=False)
    try:
        await denied(Client(url).open())
        await denied(connect(make_settings(url), protocol=3))
    finally:
        admin.acl_setuser("default", enabled=True, nopass=True, keys=["*"], channels=["*"], categories=["+@all"])


@pytest.mark.parametrize("rights", ["-select", "-script"])
async def test_a_user_who_may_not_begin_is_denied_too(settings: Settings, admin: Any, rights: str) -> None:
    admin.acl_setuser(USER, commands=[rights])
    await denied(Client(settings.redis_url.replace("/0", "/1"), settings=settings).open())


async def test_who_calls_hears_it_at_once_and_may_call_again(settings: Settings, admin: Any) -> None:
    gates = Gates()
    async with Worker([verb_agent(gates)], settings), Client(settings=settings) as client:
        task = await client.submit(AGENT, "stream", script(["reach", "runs"], ["wait", "on"], ["say", "a"]))
        following = asyncio.create_task(task.result())
        await gates.reached("runs")
        change(admin, OTHER)
        await denied(following)
        await denied(client.submit(AGENT, "stream", script(["say", "never"])))
        await denied(client.agents())
        change(admin, RIGHT)
        gates.open("on")
        assert (await asyncio.wait_for(task.result(), BOUND_S)).text == "a"


async def test_worker_and_router_say_it_at_once_and_lose_nothing(
    settings: Settings, admin: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gates = Gates()
    async with Router(settings, pace=QUIET) as router, Worker([verb_agent(gates)], settings):
        async with Client(settings=settings) as client:
            await router.until_reading()
            task = await client.submit(AGENT, "stream", script(["say", "a"], ["reach", "runs"], ["wait", "on"], ["say", "b"]))
        await gates.reached("runs")
        change(admin, OTHER)
        await eventually(lambda: {"claiming jobs of verbs", "reading the inboxes"} <= _denied_roles(caplog), "both say it")
        gates.open("on")  # what the skill says now waits
        change(admin, RIGHT)
        async with Client(settings=settings) as client:
            final = await client.task(task.id).result(BOUND_S)
        assert (final.text, final.id.attempt) == ("ab", 1)
        database = LedgerFile(tmp_path / "router.db")
        await eventually(lambda: database.state(task.id) == TaskState.COMPLETED, "the router records it")


def _denied_roles(caplog: pytest.LogCaptureFixture) -> set[str]:
    lines = (record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING)
    return {line.partition(": ")[0] for line in lines if "broker_access_denied" in line}
