"""A task id used again over HTTP after its stream's retention: nothing runs twice, nobody sees another's."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
import redis

from skillstream_router.app import Router
from skillstream_schemas.settings import Settings
from tests.client.hand_worker import HandWorker
from tests.router.eventually import eventually
from tests.router.ledger_file import LedgerFile

from .conftest import CallerAs, caller
from .sse import error_of

ORDER: dict[str, Any] = {"agent": "echo", "skill": "say", "message": "secret of acme", "context_id": "chat", "task_id": "t"}


@pytest.fixture
async def beta(caller_as: CallerAs) -> httpx.AsyncClient:
    """Another payer."""
    return await caller_as("beta")


@pytest.fixture
async def acme(
    beta: httpx.AsyncClient,
    caller_as: CallerAs,
    hand: HandWorker,
    ledger_file: LedgerFile,
    outside: redis.Redis,
    http_settings: Settings,
) -> httpx.AsyncClient:
    """The owner of a task that is over and gone from the broker."""
    http = await caller_as("acme")
    assert (await http.post("/v1/tasks", json=ORDER)).status_code == 202
    hand.run("t", "answer for acme")
    outside.xadd(http_settings.keys.inbox_of("t"), {"task": "t", "kind": "final"})
    await eventually(lambda: ledger_file.task("t").get("state") == "completed", "the database has it")
    return http


def forget(outside: redis.Redis, settings: Settings) -> None:
    outside.delete(settings.keys.events("t"))


@pytest.mark.guarantee("G6")
async def test_the_same_order_runs_nothing_and_shows_the_record(
    acme: httpx.AsyncClient, hand: HandWorker, outside: redis.Redis, http_settings: Settings
) -> None:
    forget(outside, http_settings)
    response = await acme.post("/v1/tasks", json=ORDER)
    assert (response.status_code, response.json()["state"], response.json()["text"]) == (202, "completed", "answer for acme")
    assert error_of(await acme.post("/v1/tasks", json={**ORDER, "stream": True})) == (410, "gap")
    assert (hand.entries("t"), hand.queued()) == ([], {})


@pytest.mark.guarantee("G6")
@pytest.mark.parametrize("change", [{"message": "x"}, {"skill": "other"}, {"agent": "other"}, {"context_id": "side"}])
async def test_another_order_under_the_id_is_refused(
    acme: httpx.AsyncClient, hand: HandWorker, outside: redis.Redis, http_settings: Settings, change: dict[str, str]
) -> None:
    forget(outside, http_settings)
    assert error_of(await acme.post("/v1/tasks", json={**ORDER, **change})) == (409, "task_id_taken")
    assert (hand.entries("t"), hand.queued()) == ([], {})


@pytest.mark.guarantee("G6")
async def test_another_payer_is_told_no_more_than_while_the_stream_is_kept(
    acme: httpx.AsyncClient, beta: httpx.AsyncClient, hand: HandWorker, outside: redis.Redis, http_settings: Settings
) -> None:
    order = {**ORDER, "context_id": "beta-chat"}
    kept = await beta.post("/v1/tasks", json=order)
    forget(outside, http_settings)
    gone = await beta.post("/v1/tasks", json=order)
    assert error_of(gone) == error_of(kept) == (409, "task_id_taken")
    assert gone.text == kept.text
    assert error_of(await beta.get("/v1/tasks/t")) == (404, "unknown_task")
    assert (hand.entries("t"), hand.queued()) == ([], {})


async def test_who_had_the_id_before_sees_its_own_task_and_not_the_newer_one(
    acme: httpx.AsyncClient, gateway: Router, hand: HandWorker, outside: redis.Redis, http_settings: Settings
) -> None:
    token = (await acme.post("/v1/tasks/t/token")).json()["token"]
    forget(outside, http_settings)
    hand.submit("t", payer="beta", message="secret of beta")  # past the gateway
    async with caller(gateway) as browser:
        browser.params = httpx.QueryParams(token=token)
        for http in (acme, browser):
            shown = await http.get("/v1/tasks/t")
            assert (shown.json()["text"], "beta" in shown.text) == ("answer for acme", False)
            assert error_of(await http.get("/v1/tasks/t/events")) == (410, "gap")


async def test_an_old_token_does_not_show_a_newer_task_of_its_payer(
    acme: httpx.AsyncClient, gateway: Router, hand: HandWorker, outside: redis.Redis, http_settings: Settings,
    ledger_file: LedgerFile,
) -> None:  # fmt: skip
    token = (await acme.post("/v1/tasks/t/token")).json()["token"]
    forget(outside, http_settings)
    hand.submit("t", payer="acme", message="something newer")
    async with caller(gateway) as browser:
        shown = await browser.get("/v1/tasks/t", params={"token": token})
        assert "newer" not in shown.text
        assert shown.json()["text"] == "answer for acme"
