"""rediss://: everything works over TLS, and a server that is not the one meant is refused with a coded error."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import arq
import pytest
import redis

from skillstream import Client
from skillstream.connection import connect
from skillstream_router.app import Router
from skillstream_schemas import job as arq_job
from skillstream_schemas import keys as arq_keys
from skillstream_schemas.errors import BrokerUnavailable, InvalidSettings, SkillstreamError
from skillstream_schemas.settings import Settings
from skillstream_schemas.state import TaskState
from skillstream_worker import Worker
from skillstream_worker.arq_connection import arq_redis_settings
from tests.conftest import make_settings
from tests.router.conftest import QUIET
from tests.router.eventually import eventually
from tests.router.ledger_file import LedgerFile
from tests.support.certificates import OPENSSL, Certificate
from tests.support.processes import Process
from tests.support.redis_server import RedisServer, binaries, free_port, valkey_binary
from tests.support.tls_front import TlsFront
from tests.support.verbs import AGENT, BOUND_S, Gates, script, verb_agent

pytestmark = pytest.mark.skipif(OPENSSL is None, reason="the openssl command makes the certificates")
LOOPBACK = "DNS:localhost,IP:127.0.0.1"
MIB = 1024 * 1024


class Certificates(NamedTuple):
    """The server's, one of another server, and one for another host's name."""

    good: Certificate
    other: Certificate
    elsewhere: Certificate


class Secured(NamedTuple):
    """A server behind TLS, and the view from outside without it. `front` is None where the server has TLS itself."""

    url: str
    outside: Any
    front: TlsFront | None


def environment(url: str) -> dict[str, str]:
    """What a process of a test on this URL needs."""
    return {"SKILLSTREAM_REDIS_URL": url, "SKILLSTREAM_SHARDS": "4"}


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    folder = tmp_path_factory.mktemp("certificates")
    good = Certificate.make(folder, "good", names=LOOPBACK)
    other = Certificate.make(folder, "other", names=LOOPBACK)
    return Certificates(good, other, Certificate.make(folder, "elsewhere", names="DNS:elsewhere.example"))


@pytest.fixture(scope="session")
def plain_server() -> Iterator[RedisServer]:
    with RedisServer(valkey_binary()) as server:
        yield server


@pytest.fixture(params=["front", "native"])
async def secured(
    request: pytest.FixtureRequest, plain_server: RedisServer, certificates: Certificates
) -> AsyncIterator[Secured]:
    """The packaged Valkey, which has no TLS, behind a front; and redis-server where it is on PATH and has TLS."""
    query = f"?ssl_ca_certs={certificates.good.chain}"
    if request.param == "front":
        async with TlsFront(plain_server.port, certificates.good) as front:
            with plain_server.client() as outside:
                outside.flushall()
                await eventually(partial(_is_alone, outside), "connections of the test before are gone")
                yield Secured(f"rediss://127.0.0.1:{front.port}/0{query}", outside, front)
        return
    binary, port, good = binaries().get("redis"), free_port(), certificates.good
    if binary is None:
        pytest.skip("redis-server is not on PATH")
    options = ("--tls-port", str(port), "--tls-cert-file", str(good.chain), "--tls-key-file", str(good.key))
    server = RedisServer(binary, *options, "--tls-ca-cert-file", str(good.chain), "--tls-auth-clients", "no")
    try:
        server.start()
    except RuntimeError:
        pytest.skip("redis-server was built without TLS")
    with server.client() as outside:
        yield Secured(f"rediss://127.0.0.1:{port}/0{query}", outside, None)
    server.stop()


def _is_alone(outside: Any) -> bool:
    return bool(outside.info("clients")["connected_clients"] == 1)


async def test_submit_run_follow_and_route(secured: Secured, tmp_path: Path) -> None:
    ledger = LedgerFile(tmp_path / "router.db")
    settings = make_settings(secured.url, database_url=ledger.url)
    gates = Gates()
    text = "x" * 50_000  # a frame of many is far larger than a TLS record
    async with (
        Router(settings, pace=QUIET),
        Worker([verb_agent(gates)], settings),
        Client(settings=settings) as client,
    ):
        task = await client.submit(AGENT, "stream", script(*[["say", text]] * 16))
        assert "".join([piece async for piece in task.text()]) == text * 16
        assert (await task.result(BOUND_S)).text == text * 16
        large = await client.submit(AGENT, "plain", script(["say", "x" * (MIB - 100)]))
        assert len((await large.result(BOUND_S)).text) == MIB - 100
        running = await client.submit(AGENT, "stream", script(["reach", "runs"], ["wait", "never"]))
        await gates.reached("runs")
        assert (await running.cancel(timeout=BOUND_S)).state is TaskState.CANCELED
        await eventually(lambda: ledger.task(large.id).get("state") == "completed", "the task in the database")
    secured.outside.flushall()


async def test_many_followers_on_one_connection(secured: Secured) -> None:
    settings = make_settings(secured.url)
    gates = Gates()
    async with Worker([verb_agent(gates)], settings), Client(settings=settings) as client:
        tasks = [
            await client.submit(AGENT, "stream", script(["say", f"{n} "], ["wait", "go"], ["say", "end"])) for n in range(50)
        ]
        await eventually(lambda: secured.outside.info("clients")["blocked_clients"] == 1, "the worker waits for more")
        connections = secured.outside.info("clients")["connected_clients"]

        async def read(task: Any) -> str:
            return "".join([piece async for piece in task.text()])

        reading = [asyncio.create_task(read(task)) for task in tasks]
        await eventually(lambda: secured.outside.info("clients")["tracking_clients"] == 1, "the followers' connection")
        assert secured.outside.info("clients")["connected_clients"] == connections + 1
        gates.open("go")
        assert await asyncio.wait_for(asyncio.gather(*reading), 10) == [f"{n} end" for n in range(50)]
    secured.outside.flushall()


async def test_everyone_comes_back_after_broken_connections(
    plain_server: RedisServer, certificates: Certificates, tmp_path: Path
) -> None:
    ledger = LedgerFile(tmp_path / "router.db")
    gates = Gates()
    with plain_server.client() as outside:
        outside.flushall()
        async with TlsFront(plain_server.port, certificates.good) as front:
            url = f"rediss://localhost:{front.port}/0?ssl_ca_certs={certificates.good.chain}"
            settings = make_settings(url, database_url=ledger.url)
            async with (
                Router(settings, pace=QUIET) as router,
                Worker([verb_agent(gates)], settings),
                Client(settings=settings) as client,
            ):
                await router.until_reading()
                steps = [verb for n in range(5) for verb in (["say", f"part {n} "], ["reach", f"at {n}"], ["wait", f"on {n}"])]
                task = await client.submit(AGENT, "stream", script(*steps))
                pieces: list[str] = []

                async def follow() -> None:
                    async for piece in task.text():
                        pieces.append(piece)  # noqa: PERF401 - seen as they come

                following = asyncio.create_task(follow())
                for n in range(5):
                    await gates.reached(f"at {n}")
                    before = front.connections
                    front.drop()
                    gates.open(f"on {n}")
                    await eventually(lambda before=before: front.connections > before, "somebody came back")  # type: ignore[misc]
                await asyncio.wait_for(following, 10)
                assert "".join(pieces) == "".join(f"part {n} " for n in range(5))
                await eventually(lambda: ledger.task(task.id).get("state") == "completed", "the task in the database", 10)
        outside.flushall()


async def test_processes_on_the_fast_event_loop(secured: Secured) -> None:
    """A worker process runs on uvloop where that is installed, whose TLS is another one than asyncio's."""
    with Process("worker", "tests.support.cli_agent:agent", env=environment(secured.url)) as worker:
        await asyncio.to_thread(worker.wait_for, "is ready")
        async with Client(settings=make_settings(secured.url)) as client:
            message = "x" * (MIB - 10)
            task = await client.submit("porter", "echo", message)
            assert (await task.result(10)).text == message
    secured.outside.flushall()


@pytest.mark.filterwarnings("ignore:Call to deprecated close:DeprecationWarning")  # by arq itself
async def test_arq_reads_the_same_url(secured: Secured) -> None:
    settings = make_settings(secured.url)
    done = asyncio.Event()
    agent = verb_agent(Gates())

    async def sweep(context: dict[Any, Any], word: str) -> str:
        done.set()
        return word.upper()

    agent.functions.append(arq.func(cast(Any, sweep), name="sweep"))
    async with Worker([agent], settings):
        pool = await arq.create_pool(
            arq_redis_settings(settings), job_serializer=arq_job.pack, job_deserializer=arq_job.unpack,
            default_queue_name=arq_keys.plain_queue(AGENT),
        )  # fmt: skip
        try:
            job = await pool.enqueue_job("sweep", "dust")
            assert job is not None
            assert await job.result(timeout=BOUND_S, poll_delay=0.05) == "DUST"
        finally:
            await pool.aclose()
    secured.outside.flushall()


@pytest.fixture
def sentinel_url(certificates: Certificates, tmp_path: Path) -> Iterator[str]:
    """A primary and a Sentinel that speak TLS alone, on redis-server where it is on PATH and has TLS."""
    binary, good = binaries().get("redis"), certificates.good
    if binary is None:
        pytest.skip("redis-server is not on PATH")
    primary_port, sentinel_port = free_port(), free_port()
    secured = {"tls-cert-file": good.chain, "tls-key-file": good.key, "tls-ca-cert-file": good.chain, "tls-auth-clients": "no"}
    options = [part for name, value in secured.items() for part in (f"--{name}", str(value))]
    primary = RedisServer(binary, "--tls-port", str(primary_port), *options)
    rules = [f"{name} {value}" for name, value in secured.items()] + [
        "port 0", f"tls-port {sentinel_port}", "tls-replication yes", f"sentinel monitor broker 127.0.0.1 {primary_port} 1",
        f"dir {tmp_path}",
    ]  # fmt: skip
    file = tmp_path / "sentinel.conf"
    file.write_text("\n".join(rules))
    try:
        primary.start()
    except RuntimeError:
        pytest.skip("redis-server was built without TLS")
    sentinel = subprocess.Popen([binary, str(file), "--sentinel"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    yield f"rediss+sentinel://127.0.0.1:{sentinel_port}/broker?ssl_ca_certs={good.chain}"
    sentinel.kill()
    sentinel.wait()
    primary.stop()


async def test_sentinels_are_asked_over_tls_too(sentinel_url: str, certificates: Certificates) -> None:
    settings = make_settings(sentinel_url)
    await eventually_opens(settings)
    gates = Gates()
    async with Worker([verb_agent(gates)], settings), Client(settings=settings) as client:
        task = await client.submit(AGENT, "stream", script(["say", "secured"]))
        assert (await task.result(BOUND_S)).text == "secured"
    with pytest.raises(BrokerUnavailable):
        await connect(make_settings(sentinel_url.replace(str(certificates.good.chain), str(certificates.other.chain))))
    with pytest.raises(InvalidSettings, match="arq"):
        arq_redis_settings(settings)
    with pytest.raises(InvalidSettings):
        await connect(make_settings(sentinel_url + "&ssl_unheard_of=1"))


async def eventually_opens(settings: Settings) -> None:
    """Waits until the Sentinel has looked at the primary."""
    async with asyncio.timeout(10):
        while True:
            try:
                (await connect(settings)).close()
                return
            except BrokerUnavailable:
                await asyncio.sleep(0.05)


WRONG = {
    "another authority": ("good", "?ssl_ca_certs={other.chain}"),
    "no authority named": ("good", ""),
    "another host's name": ("elsewhere", "?ssl_ca_certs={elsewhere.chain}"),
    "no file of authorities": ("good", "?ssl_ca_certs=/nowhere/ca.pem"),
    "a key as authority": ("good", "?ssl_ca_certs={good.key}"),
}
"""What may be wrong with a server's certificate, or with what the client's URL says of it."""


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("protocol", [2, 3])
async def test_a_wrong_certificate_is_refused(
    what: str, protocol: int, plain_server: RedisServer, certificates: Certificates
) -> None:
    name, query = WRONG[what]
    async with TlsFront(plain_server.port, getattr(certificates, name)) as front:
        settings = make_settings(f"rediss://:hunter2@127.0.0.1:{front.port}/0{query.format(**certificates._asdict())}")
        with pytest.raises(BrokerUnavailable) as raised:
            await connect(settings, protocol=protocol)
        assert "hunter2" not in str(raised.value)
        assert front.connections == 0
    assert raised.value.code == "broker_unavailable"


async def test_a_wrong_certificate_stops_every_part(
    plain_server: RedisServer, certificates: Certificates, tmp_path: Path
) -> None:
    async with TlsFront(plain_server.port, certificates.good) as front:
        url = f"rediss://127.0.0.1:{front.port}/0?ssl_ca_certs={certificates.other.chain}"
        settings = make_settings(url, database_url=LedgerFile(tmp_path / "r.db").url)
        worker = Worker([verb_agent(Gates())], settings)
        for start in (Client(settings=settings).open, worker.start, Router(settings).start):
            with pytest.raises(BrokerUnavailable, match="certificate"):
                await start()
        await worker.stop(grace_s=0)
        with Process("worker", "tests.support.cli_agent:agent", env=environment(url)) as process:
            line = await asyncio.to_thread(process.wait_for, "broker_unavailable")
            assert "certificate" in line
            assert await asyncio.to_thread(process.wait) == 4


async def test_the_name_is_not_checked_where_the_url_says_so(plain_server: RedisServer, certificates: Certificates) -> None:
    elsewhere = certificates.elsewhere
    async with TlsFront(plain_server.port, elsewhere) as front:
        query = f"?ssl_ca_certs={elsewhere.chain}&ssl_check_hostname=false"
        connection = await connect(make_settings(f"rediss://127.0.0.1:{front.port}/0{query}"))
        assert await connection.call("PING", timeout_s=BOUND_S) == b"PONG"
        connection.close()


async def test_tls_and_plain_do_not_meet(plain_server: RedisServer, certificates: Certificates) -> None:
    async with TlsFront(plain_server.port, certificates.good) as front:
        for url in (f"redis://127.0.0.1:{front.port}/0", f"rediss://127.0.0.1:{plain_server.port}/0"):
            settings = make_settings(url, connect_timeout_s=0.5, answer_timeout_s=0.5)
            with pytest.raises(BrokerUnavailable):
                await Client(settings=settings).open()


@pytest.mark.parametrize(
    "query", ["ssl_cert_reqs=perhaps", "ssl_ca_cert=/ca.pem", "ssl_min_version=old", "unheard_of=1", "db=x"]
)  # fmt: skip
async def test_a_query_that_nobody_knows_is_refused(query: str) -> None:
    settings = Settings(redis_url=f"rediss://:hunter2@127.0.0.1:1/0?{query}")
    with pytest.raises(SkillstreamError) as raised:
        await connect(settings)
    assert isinstance(raised.value, InvalidSettings | BrokerUnavailable)
    assert "hunter2" not in str(raised.value)


def test_the_packaged_server_has_no_tls(certificates: Certificates) -> None:
    """Why a front is needed: where this fails, the packaged Valkey can be tested with its own TLS."""
    options = ("--tls-port", str(free_port()), "--tls-cert-file", str(certificates.good.chain))
    with pytest.raises((RuntimeError, redis.exceptions.RedisError)):
        RedisServer(valkey_binary(), *options).start()
