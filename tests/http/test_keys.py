"""Who may come in: API keys, read tokens, an open gateway on loopback and nobody else."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from contextlib import closing
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from skillstream.cli.app import build
from skillstream_router.app import Router
from skillstream_router.http.read_tokens import ReadToken, TokenSigner
from skillstream_router.store import GatewayStore
from skillstream_schemas.errors import MissingExtra
from skillstream_schemas.gateway_errors import AddressInUse, OpenGateway
from skillstream_schemas.settings import Settings
from tests.client.hand_worker import HandWorker
from tests.router.ledger_file import LedgerFile
from tests.support.processes import Process

from .conftest import PATIENCE_S, CallerAs, StartGateway, caller, make_key
from .sse import error_of, read_all

ORDER = {"agent": "echo", "skill": "say", "message": "x", "task_id": "t"}


def keys(database: LedgerFile, *arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(build()[0], ["keys", *arguments, "--database", database.url])
    return result.exit_code, result.stdout, result.stderr


async def revoke(settings: Settings, key: str) -> None:
    async with GatewayStore(settings) as store:
        await store.revoke_key(key.split("-")[1], 2)


def test_a_key_is_made_listed_and_revoked(ledger_file: LedgerFile) -> None:
    code, out, _ = keys(ledger_file, "create", "--payer", "acme", "--label", "the shop", "--json")
    made = json.loads(out)
    assert (code, made["payer"]) == (0, "acme")
    listed = [json.loads(line) for line in keys(ledger_file, "list", "--json")[1].splitlines()]
    assert [(key["id"], key["payer"], key["label"], key["revoked_at"]) for key in listed] == [
        (made["id"], "acme", "the shop", None)
    ]
    assert keys(ledger_file, "revoke", made["id"])[0] == 0
    assert json.loads(keys(ledger_file, "list", "--json")[1])["revoked_at"] > 0
    code, _, err = keys(ledger_file, "revoke", made["id"])
    assert (code, err.split(":")[0]) == (1, "unknown_key")


def test_what_no_key_can_be_made_of_is_a_usage_error(ledger_file: LedgerFile) -> None:
    for arguments in (("--payer", ""), ("--payer", "x" * 257), ("--payer", "a", "--label", "a\nb")):
        code, _, err = keys(ledger_file, "create", *arguments)
        assert (code, err.split(":")[0]) == (2, "invalid_request")
    assert keys(ledger_file, "create")[0] == 2
    assert not ledger_file.path.exists()


def test_a_key_is_shown_once_and_stands_nowhere(ledger_file: LedgerFile) -> None:
    key = keys(ledger_file, "create", "--payer", "acme")[1].strip()
    assert key.startswith("sk-")
    with closing(sqlite3.connect(ledger_file.path)) as database:
        dump = "\n".join(database.iterdump())
    assert "acme" in dump
    assert key not in dump
    assert key.split("-", 2)[2] not in dump


async def test_only_a_key_in_use_lets_in(caller_as: CallerAs, gateway: Router, hand: HandWorker, http_settings: Settings) -> None:
    acme = await caller_as("acme")
    key = acme.headers["authorization"].partition(" ")[2]
    assert (await acme.post("/v1/tasks", json=ORDER)).status_code == 202
    async with caller(gateway) as http:
        assert (await http.get("/v1/tasks/t", headers={"x-api-key": key})).status_code == 200
        wrong = [{}, {"authorization": key}, {"authorization": "Bearer x"}, {"x-api-key": key[:-1] + "!"},
                 {"authorization": f"Bearer {key[:-1]}{'a' if key[-1] != 'a' else 'b'}"}]  # fmt: skip
        for headers in wrong:
            response = await http.get("/v1/tasks/t", headers=headers)
            assert error_of(response) == (401, "unauthorized"), headers
            assert response.headers["www-authenticate"] == "Bearer"
        assert error_of(await http.get("/v1/tasks/t", params={"token": key})) == (401, "unauthorized"), "no key in a URL"
        assert (await http.get("/healthz")).json() == {"status": "ok"}
    await revoke(http_settings, key)
    await _until_refused(acme)


async def _until_refused(http: httpx.AsyncClient, **options: Any) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while (await http.get("/v1/tasks/t", **options)).status_code != 401:  # noqa: ASYNC110
            await asyncio.sleep(0.05)  # keys are read again once a second


async def test_a_read_token_shows_one_task_and_changes_nothing(
    caller_as: CallerAs, gateway: Router, hand: HandWorker, http_settings: Settings
) -> None:
    acme = await caller_as("acme")
    for task_id in ("t", "u"):
        await acme.post("/v1/tasks", json={**ORDER, "task_id": task_id})
    hand.run("t", "x")
    told = (await acme.post("/v1/tasks/t/token", json={"ttl_s": 60})).json()
    token = told["token"]
    async with caller(gateway) as browser:
        assert (await read_all(browser, "t", token=token))[-1]["type"] == "final"
        assert (await browser.get("/v1/tasks/t", headers={"authorization": f"Bearer {token}"})).json()["state"] == "completed"
        refused: list[tuple[str, str, Any]] = [
            ("GET", "/v1/tasks/u", None), ("GET", "/v1/tasks/u/events", None), ("GET", "/v1/agents", None),
            ("POST", "/v1/tasks/t/cancel", {}), ("POST", "/v1/tasks/t/token", {}), ("GET", "/v1/contexts/c/messages", None),
            ("POST", "/v1/tasks", {**ORDER, "task_id": "v"}),
        ]  # fmt: skip
        for method, path, body in refused:
            response = await browser.request(method, path, json=body, params={"token": token})
            assert error_of(response) == (401, "unauthorized"), path
        parts = token.split("-")
        later, older = [*parts[:2], str(int(parts[2]) + 9), *parts[3:]], [*parts[:3], str(int(parts[3]) - 9), *parts[4:]]
        for forged in (token[:-1], "-".join(later), "-".join(older), "rt-" + token, token.upper()):
            assert error_of(await browser.get("/v1/tasks/t", params={"token": forged})) == (401, "unauthorized")
        await revoke(http_settings, acme.headers["authorization"])
        await _until_refused(browser, params={"token": token})


def test_a_token_ends_with_its_time() -> None:
    signer = TokenSigner(b"secret")
    text = signer.sign("t", ReadToken("0123abcd", 1_700_000_000_000, 5))
    assert signer.read("t", text, 1_699_999_999_999) == ReadToken("0123abcd", 1_700_000_000_000, 5)
    assert signer.read("t", text, 1_700_000_000_000) is None
    assert signer.read("u", text, 0) is None
    assert TokenSigner(b"other").read("t", text, 0) is None


async def test_all_routers_of_a_database_know_each_others_tokens(http_settings: Settings) -> None:
    async with GatewayStore(http_settings) as one, GatewayStore(http_settings) as two:
        assert await one.signing_secret() == await two.signing_secret()


async def test_revoking_the_last_key_opens_nothing(
    caller_as: CallerAs, gateway: Router, hand: HandWorker, http_settings: Settings
) -> None:
    acme = await caller_as("acme")
    await acme.post("/v1/tasks", json=ORDER)
    await revoke(http_settings, acme.headers["authorization"])
    await _until_refused(acme)
    async with caller(gateway) as http:
        assert error_of(await http.post("/v1/tasks", json=ORDER)) == (401, "unauthorized")


@pytest.mark.parametrize("headers", [{"host": "evil.example"}, {"host": "127.0.0.1.evil.example:80"}, {"host": "[x"},
                                     {"origin": "https://evil.example"}, {"origin": "null"},
                                     {"sec-fetch-site": "cross-site", "sec-fetch-dest": "image"}])  # fmt: skip
async def test_web_pages_stay_out_of_an_open_gateway(http: httpx.AsyncClient, hand: HandWorker, headers: dict[str, str]) -> None:
    assert error_of(await http.get("/v1/agents", headers=headers)) == (403, "foreign_host")
    assert error_of(await http.post("/v1/tasks", json=ORDER, headers=headers)) == (403, "foreign_host")
    assert hand.entries("t") == []


async def test_an_image_of_a_page_cancels_nothing(http: httpx.AsyncClient, hand: HandWorker) -> None:
    assert (await http.post("/v1/tasks", json=ORDER)).status_code == 202
    path = "/v1/tasks/t/events?cancel_on_disconnect=true"
    for site, status in (("cross-site", 403), ("same-origin", 200), ("none", 200)):
        async with http.stream(
            "GET", path.partition("?")[0] if status == 200 else path, headers={"sec-fetch-site": site}
        ) as answer:
            assert answer.status_code == status
    assert [entry_id for entry_id, _ in hand.entries("t")] == ["0-1"]


async def test_a_page_that_is_let_in_may_ask(start_gateway: StartGateway, hand: HandWorker) -> None:
    gateway = await start_gateway(http_cors=("https://app.example",))
    async with caller(gateway) as http:
        asked = {"origin": "https://app.example", "access-control-request-method": "POST",
                 "access-control-request-headers": "authorization,content-type,x-stainless-retry-count"}  # fmt: skip
        allowed = await http.options("/v1/tasks", headers=asked)
        assert (allowed.status_code, allowed.headers["access-control-allow-origin"]) == (200, "https://app.example")
        assert "x-stainless-retry-count" in allowed.headers["access-control-allow-headers"]
        answer = await http.get("/v1/agents", headers={"origin": "https://app.example", "sec-fetch-site": "cross-site"})
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, "https://app.example")
        assert {"retry-after", "x-should-retry"} <= set(answer.headers["access-control-expose-headers"].split(", "))
        stranger = await http.options("/v1/tasks", headers={**asked, "origin": "https://evil.example"})
        assert "access-control-allow-origin" not in stranger.headers


async def test_a_gateway_without_keys_listens_on_this_machine_alone(http_settings: Settings) -> None:
    router = Router(http_settings.changed(http="0.0.0.0:0"))
    with pytest.raises(OpenGateway):
        await router.start()
    key = await make_key(http_settings, "acme")
    async with Router(http_settings.changed(http="0.0.0.0:0")) as open_to_all:
        assert open_to_all.http is not None
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{open_to_all.http.port}", trust_env=False) as http:
            assert error_of(await http.get("/v1/agents")) == (401, "unauthorized")
            assert (await http.get("/v1/agents", headers={"authorization": f"Bearer {key}"})).status_code == 200


async def test_an_address_that_is_taken_is_a_coded_error(gateway: Router, http_settings: Settings) -> None:
    assert gateway.http is not None
    with pytest.raises(AddressInUse, match="in use"):
        await Router(http_settings.changed(http=f"127.0.0.1:{gateway.http.port}")).start()
    with pytest.raises(AddressInUse):
        await Router(http_settings.changed(http="127.0.0.1:70000")).start()
    await make_key(http_settings, "acme")
    with pytest.raises(AddressInUse):
        await Router(http_settings.changed(http="no.such.host.invalid:0")).start()


def test_a_router_without_the_extra_says_which(monkeypatch: pytest.MonkeyPatch, http_settings: Settings) -> None:
    for name in [name for name in sys.modules if name.startswith("skillstream_router.http")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    with pytest.raises(MissingExtra, match=r"skillstream\[http\]"):
        Router(http_settings)
    Router(http_settings.changed(http=None))


def test_the_command_refuses_to_listen_for_everyone(http_settings: Settings, ledger_file: LedgerFile) -> None:
    arguments = ["router", "--redis", http_settings.redis_url, "--database", ledger_file.url, "--http", "0.0.0.0:0"]
    with Process(*arguments, env={"SKILLSTREAM_SHARDS": str(http_settings.shards)}) as router:
        router.wait_for("open_gateway: ")
        assert router.wait() == 2


def test_no_http_wins_over_the_environment(http_settings: Settings, ledger_file: LedgerFile) -> None:
    arguments = ["router", "--redis", http_settings.redis_url, "--database", ledger_file.url]
    environment = {"SKILLSTREAM_SHARDS": str(http_settings.shards), "SKILLSTREAM_HTTP": "127.0.0.1:0"}
    with Process(*arguments, env=environment) as router:
        url = router.wait_for("HTTP at ").split()[-1]
        assert httpx.get(f"{url}/healthz", trust_env=False).json() == {"status": "ok"}
    with Process(*arguments, "--no-http", env=environment) as router:
        router.wait_for("is ready")
        assert not any("HTTP at" in line for line in router.lines)
