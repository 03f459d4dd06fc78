"""Passwords of URLs stay out of errors, logs, reprs, output, and the arguments of processes that we start."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import traceback
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from rich.pretty import pretty_repr

from skillstream import Client, SyncClient
from skillstream.cli.target import publish_running
from skillstream_router.app import Router
from skillstream_schemas.errors import SkillstreamError
from skillstream_schemas.settings import Settings, without_secret
from skillstream_worker import Worker
from skillstream_worker.arq_connection import arq_redis_settings
from tests.conftest import make_settings
from tests.router.conftest import QUIET
from tests.router.eventually import eventually
from tests.router.ledger_file import LedgerFile
from tests.support.cutting_proxy import CuttingProxy
from tests.support.processes import Process
from tests.support.redis_server import RedisServer, free_port
from tests.support.verbs import AGENT, BOUND_S, Gates, script, verb_agent

SECRET = "hunter2"
TARGET = "tests.support.cli_agent:agent"
Start = Callable[[Settings], Coroutine[Any, Any, object]]


def assert_unseen(*texts: str, secret: str = SECRET) -> None:
    """Fails where the secret is in a text; the failure does not show it either."""
    seen = [text.replace(secret, "<the secret>") for text in texts if secret in text]
    assert not seen, seen[0][:2000]


def assert_error_is_quiet(error: BaseException) -> None:
    assert_unseen(str(error), repr(error), repr(error.args), "".join(traceback.format_exception(error)))


async def open_client(settings: Settings) -> object:
    return await Client(settings=settings).open()


async def open_sync_client(settings: Settings) -> object:
    return await asyncio.to_thread(SyncClient, settings=settings)


async def start_worker(settings: Settings) -> None:
    worker = Worker([verb_agent(Gates())], settings)
    try:
        await worker.start()
    finally:
        await worker.stop(grace_s=0)


async def start_router(settings: Settings) -> None:
    await Router(settings).start()


STARTS: list[Start] = [open_client, open_sync_client, start_worker, start_router]
URLS = [
    "redis://user:hunter2@127.0.0.1:{port}/0", "redis://:hunter2@127.0.0.1:{port}/0", "rediss://:hunter2@127.0.0.1:{port}/0",
    "redis://127.0.0.1:{port}/0?password=hunter2", "redis://127.0.0.1:{port}/0?username=u&password=hunter2&db=1",
    "rediss://127.0.0.1:{port}/0?ssl_password=hunter2", "redis://127.0.0.1:{port}/0?Password=hunter2",
    "redis://user:a/hunter2@127.0.0.1:{port}/0", "redis://user:hunter2/b@127.0.0.1:{port}/0", "redis://user:hunter2#@127.0.0.1:{port}",
    "redis://user:hunter2?x=@127.0.0.1:{port}", "redis://user:hunter2@[::1/0", "redis://user:hunter2@127.0.0.1:port/0",
    "http://user:hunter2@127.0.0.1:{port}/0", "unix:///nowhere/redis.sock?password=hunter2", "redis://user:hunter2@127.0.0.1:{port}/x",
    "redis://user:hunter2@127.0.0.1:{port}/0?socket_timeout=x", "redis://user:hunter2@127.0.0.1:{port}/0?unheard_of=1",
]  # fmt: skip


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("start", STARTS, ids=lambda start: start.__name__)
async def test_a_part_that_cannot_connect_tells_why_without_the_password(
    start: Start, url: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.DEBUG)
    database_url = LedgerFile(tmp_path / "router.db").url
    settings = Settings(redis_url=url.format(port=free_port()), database_url=database_url, connect_timeout_s=0.5)
    assert_unseen(repr(settings), str(settings), f"{settings}", pretty_repr(settings), without_secret(settings.redis_url))
    with pytest.raises(SkillstreamError) as raised:
        await start(settings)
    assert raised.value.code in ("broker_unavailable", "invalid_settings")
    assert_error_is_quiet(raised.value)
    assert_unseen(caplog.text, *(repr(record.__dict__) for record in caplog.records))


DATABASES = ["mysql://u:hunter2@h/db", "sqlite://u:hunter2@h/db", "://u:hunter2@h", "x://:hunter2@", "sqlite://?password=hunter2"]


@pytest.mark.parametrize("url", DATABASES)
async def test_a_database_that_cannot_be_used_is_named_without_its_password(url: str) -> None:
    with pytest.raises(SkillstreamError) as raised:
        await Router(Settings(database_url=url)).start()
    assert_error_is_quiet(raised.value)


async def test_reconnecting_and_giving_up_say_nothing_of_the_password(
    acl_server: RedisServer, admin: Any, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.DEBUG)
    asyncio.get_running_loop().set_debug(True)
    admin.acl_setuser("all", enabled=True, passwords=[f"+{SECRET}"], keys=["*"], channels=["*"], categories=["+@all"])
    gates = Gates()
    async with CuttingProxy(acl_server.port) as proxy:
        url = proxy.url.replace("redis://", f"redis://all:{SECRET}@")
        settings = make_settings(url, database_url=LedgerFile(tmp_path / "router.db").url, patience_s=1)
        async with (
            Router(settings, pace=QUIET) as router,
            Worker([verb_agent(gates)], settings),
            Client(settings=settings) as client,
        ):
            await router.until_reading()
            task = await client.submit(AGENT, "stream", script(["say", "a"], ["reach", "runs"], ["wait", "on"], ["say", "b"]))
            following = asyncio.create_task(task.result(BOUND_S))
            await gates.reached("runs")
            proxy.drop()
            gates.open("on")
            assert (await following).text == "ab"
            assert_reprs_are_quiet()
            admin.acl_setuser("all", enabled=True, reset_passwords=True)
            admin.acl_setuser("all", enabled=True, passwords=["+other"])
            proxy.drop()
            with pytest.raises(SkillstreamError) as raised:
                await client.submit(AGENT, "stream", script(["say", "never"]))
            assert_error_is_quiet(raised.value)
            with pytest.raises(SkillstreamError) as raised:
                await client.task("t").result(3)
            assert_error_is_quiet(raised.value)
            assert_reprs_are_quiet()
    admin.acl_deluser("all")
    admin.flushall()
    lines = [record.getMessage() for record in caplog.records if record.name == "skillstream.outage"]
    assert any("claiming jobs" in line for line in lines), lines
    assert any("inboxes" in line or "tasks" in line for line in lines), lines
    assert_unseen(caplog.text, *(repr(record.__dict__) for record in caplog.records))


def assert_reprs_are_quiet() -> None:
    """Looks at the repr of every object of ours that is alive."""
    kinds: set[str] = set()
    for found in gc.get_objects():
        kind = type(found)
        if str(kind.__module__).startswith("skillstream"):
            kinds.add(kind.__name__)
            assert_unseen(repr(found), str(found))
    assert {"Settings", "Client", "Pipeline", "Connection", "FollowHub", "Worker", "WorkerBroker", "Router", "Store"} <= kinds


def test_the_settings_that_arq_gets_do_not_show_it() -> None:
    settings = Settings(redis_url=f"rediss://user:{SECRET}%2F@h:1/3?ssl_ca_certs=/ca.pem&ssl_cert_reqs=optional")
    made = arq_redis_settings(settings)
    assert_unseen(repr(made), str(made), str({"redis_settings": made}))
    assert (made.username, made.password, made.host, made.port, made.database) == ("user", f"{SECRET}/", "h", 1, 3)
    assert (made.ssl, made.ssl_ca_certs, made.ssl_cert_reqs, made.ssl_check_hostname) == (True, "/ca.pem", "optional", True)
    made = arq_redis_settings(Settings(redis_url=f"redis://h/0?username=user&password={SECRET}&ssl_check_hostname=False"))
    assert (made.username, made.password, made.ssl_check_hostname) == ("user", SECRET, False)
    for url in (f"http://u:{SECRET}@h", f"redis://u:{SECRET}/@h", f"redis://u:{SECRET}@h/x"):
        with pytest.raises(SkillstreamError) as raised:
            arq_redis_settings(Settings(redis_url=url))
        assert_error_is_quiet(raised.value)


COMMANDS = [
    ("worker", TARGET), ("worker", TARGET, "--processes", "2"), ("router", "--database", "{data}/router.db"),
    ("agents",), ("queues",),
    ("submit", "porter", "echo", "x"), ("tail", "t"), ("cancel", "t"), ("dev", TARGET, "--data", "{data}"),
]  # fmt: skip


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda arguments: "-".join(arguments[:1] + arguments[2:3]))
async def test_commands_that_fail_print_no_password(arguments: tuple[str, ...], tmp_path: Path) -> None:
    filled = [argument.format(data=tmp_path) for argument in arguments]
    filled = [f"sqlite:///{argument}" if argument.endswith(".db") else argument for argument in filled]
    url = f"redis://user:{SECRET}@127.0.0.1:{free_port()}/0"
    env = {
        "SKILLSTREAM_REDIS_URL": url,
        "SKILLSTREAM_LOG_LEVEL": "DEBUG",
        "SKILLSTREAM_HTTP": "127.0.0.1:0",
        "XDG_STATE_HOME": str(tmp_path),
    }
    with Process(*filled, env=env) as process:
        assert await asyncio.to_thread(process.wait, 30) != 0
        assert any("broker_unavailable" in line for line in process.lines)
        assert_unseen(*process.lines)


def children(pid: int) -> list[int]:
    """All processes that a process started, and theirs."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    found = [int(child) for child in path.read_text().split()]
    return found + [grandchild for child in found for grandchild in children(child)]


def arguments_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks at /proc")
@pytest.mark.parametrize(
    ("arguments", "count"), [(("worker", TARGET, "--processes", "2"), 2), (("dev", TARGET, "--data", "{data}"), 2)]
)  # fmt: skip
async def test_processes_that_we_start_get_urls_by_their_environment(
    arguments: tuple[str, ...], count: int, acl_server: RedisServer, admin: Any, tmp_path: Path
) -> None:
    admin.acl_setuser("all", enabled=True, passwords=[f"+{SECRET}"], keys=["*"], channels=["*"], categories=["+@all"])
    env = {
        "SKILLSTREAM_REDIS_URL": f"redis://all:{SECRET}@127.0.0.1:{acl_server.port}/0",
        "SKILLSTREAM_LOG_LEVEL": "DEBUG",
        "SKILLSTREAM_HTTP": "127.0.0.1:0",  # 8000 may be another's
        "XDG_STATE_HOME": str(tmp_path),
    }
    with Process(*(argument.format(data=tmp_path) for argument in arguments), env=env) as process:
        for _ in range(count):
            await asyncio.to_thread(process.wait_for, "is ready")
        started = children(process.pid)
        assert len(started) == count
        assert_unseen(*map(arguments_of, [process.pid, *started]))
        if arguments[0] == "dev":
            record = tmp_path / "skillstream" / "dev.json"
            assert record.stat().st_mode & 0o077 == 0
        process.send(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, 30) == 0
        assert_unseen(*process.lines)
        await eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in started), "its processes have ended", 30)
    admin.acl_deluser("all")
    admin.flushall()


def test_a_record_of_urls_is_for_its_owner_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folders = (tmp_path / "skillstream", tmp_path / "data")
    for folder in folders:
        folder.mkdir()
        (folder / "dev.json").write_text("{}")
        os.chmod(folder / "dev.json", 0o644)
    publish_running(Settings(redis_url=f"redis://:{SECRET}@h"), tmp_path / "data")
    for folder in folders:
        assert SECRET in (folder / "dev.json").read_text()
        assert (folder / "dev.json").stat().st_mode & 0o777 == 0o600
