"""The packaged server: a port of its own however many start at once, and a word for each way to end."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from pathlib import Path

import pytest
import redis

from skillstream.cli.embedded import EmbeddedValkey
from skillstream_schemas.errors import BrokerUnavailable
from tests.support.processes import is_running

from .bounds import soon, until


def pid_of(url: str) -> int:
    with redis.Redis.from_url(url) as outside:
        return int(outside.info("server")["process_id"])


@pytest.mark.timeout(60)
async def test_servers_that_start_at_once_have_a_port_each(tmp_path: Path) -> None:
    servers = [EmbeddedValkey(tmp_path / str(number)) for number in range(6)]
    try:
        await asyncio.gather(*(server.start() for server in servers))
        assert len({server.url for server in servers}) == 6
        pids = [pid_of(server.url) for server in servers]
        assert len(set(pids)) == 6
    finally:
        for server in servers:
            await server.stop()
    assert not any(map(is_running, pids))


async def test_a_port_that_is_taken_after_it_was_looked_at_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        server = EmbeddedValkey(tmp_path)
        monkeypatch.setattr(server, "_ports", [other.getsockname()[1], 0])
        async with server:
            assert pid_of(server.url)
            assert not server.url.endswith(f":{other.getsockname()[1]}/0")


async def test_a_named_port_that_is_taken_is_said(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as other,
        pytest.raises(BrokerUnavailable, match="ended with exit code 1") as raised,
    ):
        await soon(EmbeddedValkey(tmp_path, port=other.getsockname()[1]).start())
    assert str(tmp_path / "valkey.log") in str(raised.value)
    assert "Address already in use" in (tmp_path / "valkey.log").read_text()


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
async def test_a_server_that_ends_by_itself_tells_how(tmp_path: Path, signum: signal.Signals) -> None:
    async with EmbeddedValkey(tmp_path) as server:
        os.kill(pid_of(server.url), signum)
        how, *log = await soon(server.ended())
    assert how == ("was killed by SIGKILL" if signum is signal.SIGKILL else "ended with exit code 0")
    assert 1 <= len(log) <= 5
    assert all(line.strip() for line in log)


async def test_data_that_cannot_be_read_is_told_by_the_servers_own_words(tmp_path: Path) -> None:
    folder = tmp_path / "appendonlydir"
    folder.mkdir()
    (folder / "appendonly.aof.manifest").write_text("no manifest\n")
    with pytest.raises(BrokerUnavailable, match=r"ended with exit code 1: .*Invalid AOF manifest"):
        await soon(EmbeddedValkey(tmp_path).start())


async def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BrokerUnavailable, match=r"cannot be started: .*Not a directory"):
        await soon(EmbeddedValkey(tmp_path / "file" / "folder").start())


async def test_a_server_whose_keeper_and_owner_were_killed_keeps_its_folder(tmp_path: Path) -> None:
    """A second server on one append-only file would run the first one's tasks again."""
    orphaned = EmbeddedValkey(tmp_path)
    await soon(orphaned.start())
    pid, keeper = pid_of(orphaned.url), orphaned._keeper
    assert keeper is not None
    try:
        keeper.kill()
        await soon(keeper.wait())  # and the owner does nothing more
        with pytest.raises(BrokerUnavailable, match=f"is in use by process {pid};"):
            await soon(EmbeddedValkey(tmp_path).start())
    finally:
        os.kill(pid, signal.SIGKILL)
    await until(lambda: not is_running(pid))
    async with EmbeddedValkey(tmp_path) as server:
        assert pid_of(server.url) != pid
