"""EventSource does not tell a page what it was refused with: how the code of docs/http.md finds out, and how often it asks."""

from __future__ import annotations

import asyncio

import httpx
import pytest
import redis

from skillstream_router.http.read_tokens import ReadToken, TokenSigner
from skillstream_router.store import GatewayStore
from skillstream_schemas.settings import Settings
from tests.client.hand_worker import AT, HandWorker
from tests.http.conftest import StartGateway, caller, make_key
from tests.router.eventually import eventually
from tests.router.ledger_file import LedgerFile
from tests.support.cutting_proxy import CuttingProxy

from .chromium import Page
from .conftest import PAYER, Shop, follow, ids
from .page_server import PageServer

FAR = 99_999_999_999_999


async def signed(settings: Settings, task_id: str, expires_at: int = FAR) -> str:
    """A read token of the shop's key, good until `expires_at` (unix ms)."""
    async with GatewayStore(settings) as store:
        (key,) = await store.keys()
        return TokenSigner(await store.signing_secret()).sign(task_id, ReadToken(key.id, expires_at, int(AT)))


@pytest.mark.parametrize(
    ("task_id", "named", "expires_at", "code"),
    [("t", "t", 1_700_000_000_000, "unauthorized"), ("t", "u", FAR, "unauthorized"), ("gone", "gone", FAR, "unknown_task")],
)
async def test_a_page_that_may_not_follow_hears_why_and_asks_once(
    page: Page, site: PageServer, shop: Shop, http_settings: Settings, hand: HandWorker,
    task_id: str, named: str, expires_at: int, code: str,
) -> None:  # fmt: skip
    hand.submit("t", payer=PAYER)
    await follow(page, site, shop.url, task_id, await signed(http_settings, named, expires_at))
    await page.run("await followed")
    assert await page.run("return refusal") == code
    assert await page.run("return [source.readyState, seen.length, tokens.length]") == [2, 0, 1]
    asked = [request.url.partition("?")[0].removeprefix(shop.url) for request in await page.sent("/v1/")]
    assert asked == [f"/v1/tasks/{task_id}/events", f"/v1/tasks/{task_id}"]


async def test_a_page_goes_on_with_a_fresh_token_where_the_first_has_ended(
    page: Page, site: PageServer, shop: Shop, http_settings: Settings, hand: HandWorker
) -> None:
    hand.submit("t", payer=PAYER)
    hand.open("t")
    token = await shop.token("t")
    gateway = shop.gateway.http
    assert gateway is not None
    async with CuttingProxy(gateway.port) as proxy, caller(shop.gateway, await make_key(http_settings, PAYER)) as other:
        await follow(page, site, f"http://127.0.0.1:{proxy.port}", "t", token)
        await page.until("seen.length === 2")
        await _until_status(other, "/v1/tasks/t", 200)
        fresh = (await other.post("/v1/tasks/t/token")).json()["token"]
        await page.run("window.tokenOf = async () => { tokens.push(given[0]); return given[0]; }", fresh)
        await _revoke(http_settings, token.split("-")[1])
        await _until_status(other, f"/v1/tasks/t?token={token}", 401, authorization="")
        proxy.drop()
        hand.finish("t", "1-2", "", chunks=0)
        await page.run("await followed")
    assert ids(await page.run("return seen")) == ["0-1", "1-1", "1-2"]
    assert await page.run("return tokens") == [token, fresh]


async def _until_status(http: httpx.AsyncClient, path: str, status: int, **headers: str) -> None:
    async with asyncio.timeout(10):
        while (await http.get(path, headers=headers)).status_code != status:  # noqa: ASYNC110
            await asyncio.sleep(0.05)  # keys are read again once a second


async def _revoke(settings: Settings, key_id: str) -> None:
    async with GatewayStore(settings) as store:
        await store.revoke_key(key_id, 2)


async def test_a_page_is_told_how_a_task_ended_whose_events_are_gone(
    page: Page, site: PageServer, shop: Shop, hand: HandWorker, outside: redis.Redis, settings: Settings, ledger_file: LedgerFile
) -> None:
    hand.submit("t", payer=PAYER)
    hand.run("t", "all of it")
    outside.xadd(settings.keys.inbox_of("t"), {"task": "t", "kind": "final"})
    await eventually(lambda: ledger_file.task("t").get("state") == "completed", "the database has it")
    token = await shop.token("t")
    outside.delete(settings.keys.events("t"))
    await follow(page, site, shop.url, "t", token)
    await page.run("await followed")
    assert await page.run("return [last.state, last.text]") == ["completed", "all of it"]
    assert len(await page.sent("/v1/")) == 2


async def test_a_page_is_told_how_a_task_ended_whose_stream_has_a_hole(
    page: Page, site: PageServer, shop: Shop, hand: HandWorker
) -> None:
    hand.submit("t", payer=PAYER)
    hand.open("t")
    hand.say("t", "lost", seq=3)
    hand.finish("t", "1-4", "all of it", chunks=1)
    await follow(page, site, shop.url, "t", await shop.token("t"))
    await page.run("await followed")
    assert ids(await page.run("return seen")) == ["0-1", "1-1", "error"]
    assert await page.run("return [last.state, last.text]") == ["completed", "all of it"]
    assert len(await page.sent("/events")) == 1


async def test_a_page_waits_for_a_broker_that_is_away(
    page: Page, site: PageServer, start_gateway: StartGateway, http_settings: Settings, hand: HandWorker, outside: redis.Redis
) -> None:
    hand.submit("t", payer=PAYER)
    hand.open("t")
    port = outside.connection_pool.connection_kwargs["port"]
    async with CuttingProxy(port) as proxy:
        key = await make_key(http_settings, PAYER)
        gateway = await start_gateway(http_redis_url=proxy.url, http_patience_s=0.2, http_cors=(site.origin,))
        assert gateway.http is not None
        async with caller(gateway, key) as service:
            token = (await service.post("/v1/tasks/t/token")).json()["token"]
        proxy.swallows = True
        await follow(page, site, gateway.http.url, "t", token)
        await _until_sent(page, "/v1/tasks/t?", 1)
        proxy.swallows = False
        proxy.drop()
        await page.until("seen.length === 2")
        hand.finish("t", "1-2", "", chunks=0)
        await page.run("await followed")
    assert ids(await page.run("return seen")) == ["0-1", "1-1", "1-2"]
    assert await page.run("return tokens.length") == 1


async def _until_sent(page: Page, path: str, number: int) -> None:
    async with asyncio.timeout(10):
        while len(await page.sent(path)) < number:
            await page.until("true")


async def test_a_page_that_is_not_let_in_sees_nothing(page: Page, site: PageServer, start_gateway: StartGateway, hand: HandWorker,
                                                      http_settings: Settings) -> None:  # fmt: skip
    hand.submit("t", payer=PAYER)
    key = await make_key(http_settings, PAYER)
    gateway = await start_gateway(http_cors=("https://another.example",))
    assert gateway.http is not None
    async with caller(gateway, key) as service:
        token = (await service.post("/v1/tasks/t/token")).json()["token"]
    await follow(page, site, gateway.http.url, "t", token)
    await page.until("source.readyState === EventSource.CLOSED")
    assert await page.run("return seen") == []
    assert len(await page.sent("/events")) == 1
