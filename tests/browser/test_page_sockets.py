"""Pages that follow tasks over a WebSocket, whose handshake carries no header of theirs."""

from __future__ import annotations

import json
from typing import Any

from skillstream_worker import Worker
from tests.client.hand_worker import HandWorker
from tests.http.conftest import StartGateway
from tests.support.verbs import Gates

from .chromium import Page
from .conftest import PAYER, Shop
from .page_server import HOST, PageServer

_OPEN = """
const seen = window.frames_seen = [], closes = window.closes = [];  // a socket from before keeps its own
window.socket = new WebSocket(given[0]);
socket.onmessage = ({ data }) => seen.push(data);
socket.onclose = ({ code }) => closes.push(code);
"""
NORMAL, REFUSED = 1000, 1006


def socket_url(url: str, path: str) -> str:
    return url.replace("http://", "ws://") + path


async def frames(page: Page) -> list[dict[str, Any]]:
    return [json.loads(text)["params"] for text in await page.run("return frames_seen")]


async def test_a_page_follows_over_a_socket(
    page: Page, site: PageServer, shop: Shop, merging_nothing: Worker, gates: Gates
) -> None:
    await page.open(site.origin.replace(HOST, "127.0.0.1"))  # an origin that the gateway does not name
    task_id = await shop.start(["say", "One\u2028"], ["wait", "go on"], ["say", "😀" * 15 * 1024])
    path = f"/v1/tasks/{task_id}/ws?form=flat&token={await shop.token(task_id)}"
    await page.run(_OPEN, socket_url(shop.url, path))
    await page.until("frames_seen.length")
    assert [frame["text"] for frame in await frames(page)] == ["One\u2028"]
    await page.run("socket.close()")
    gates.open("go on")
    cursor = (await frames(page))[-1]["event"]["id"]
    await page.run(_OPEN, socket_url(shop.url, f"{path}&after={cursor}"))
    await page.until("closes.length")
    assert [frame["text"] for frame in await frames(page)] == ["😀" * 15 * 1024, "One\u2028" + "😀" * 15 * 1024]
    assert await page.run("return closes") == [NORMAL]


async def test_a_socket_that_is_refused_says_no_more(page: Page, site: PageServer, shop: Shop, hand: HandWorker) -> None:
    hand.submit("t", payer=PAYER)
    token = await shop.token("t")
    await page.open(site.origin)
    key = str(shop.service.headers["authorization"]).removeprefix("Bearer ")
    for path in ("/v1/tasks/t/ws", f"/v1/tasks/u/ws?token={token}", f"/v1/hub?token={token}", f"/v1/hub?token={key}"):
        await page.run(_OPEN, socket_url(shop.url, path))
        await page.until("closes.length")
        assert await page.run("return [closes, frames_seen]") == [[REFUSED], []], path


async def test_a_page_opens_a_socket_of_an_open_gateway_only_where_it_is_named(
    page: Page, site: PageServer, start_gateway: StartGateway
) -> None:
    await page.open(site.origin)
    for cors, is_let_in in (((), False), ((site.origin,), True)):
        gateway = await start_gateway(http_cors=cors)
        assert gateway.http is not None
        await page.run(_OPEN, socket_url(gateway.http.url, "/v1/hub"))
        await page.until("closes.length + frames_seen.length")
        assert await page.run("return [closes.length, frames_seen.length]") == [not is_let_in, is_let_in]


async def test_six_streams_are_all_that_an_origin_gets_and_sockets_are_not_among_them(
    page: Page, site: PageServer, shop: Shop, hand: HandWorker
) -> None:
    hand.submit("t", payer=PAYER)
    token = await shop.token("t")
    await page.open(site.origin)
    await page.run("""
        const [url, token] = given;
        const events = `${url}/v1/tasks/t/events?token=${token}`;
        window.order = []; window.heard = 0;
        window.sources = Array.from({ length: 6 }, () => new EventSource(events));
        for (const source of sources) source.onmessage = () => { heard += 1; };
    """, shop.url, token)  # fmt: skip
    await page.until("heard === 6")
    await page.run("""
        const [url, token] = given;
        window.asked = fetch(`${url}/v1/tasks/t?token=${token}`).then(() => order.push("fetch"));
    """, shop.url, token)  # fmt: skip
    await page.run(_OPEN, socket_url(shop.url, f"/v1/tasks/t/ws?token={token}"))
    await page.until("socket.readyState === WebSocket.OPEN")
    hand.open("t")
    hand.say("t", "x")
    await page.until("frames_seen.length")
    await page.run("order.push('one is closed'); sources[0].close(); await asked;")
    assert await page.run("return order") == ["one is closed", "fetch"]
