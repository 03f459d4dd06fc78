"""A page of another origin follows tasks with EventSource, by the code that docs/http.md shows."""

from __future__ import annotations

import asyncio
import random
import signal
from typing import Any

import pytest
import redis

from skillstream_schemas.settings import Settings
from skillstream_worker import Worker
from tests.client.hand_worker import HandWorker
from tests.router.eventually import eventually
from tests.support.cutting_proxy import CuttingProxy
from tests.support.processes import Process
from tests.support.redis_server import free_port
from tests.support.verbs import Gates

from .chromium import Page
from .conftest import PAYER, Shop, follow, ids
from .page_server import PageServer

SEED = 20_240_229
CLOSED = 2
HARD = [
    "line\nbreaks\r\nof\rall kinds\n\n", "data: no event\n\nid: 9-9\n\n", "\u2028\u2029\x85\x0b\x0c\x1c", "\x00\x1f\x7f\ufeff",
    "👩\u200d🚀 e\u0301 \U00010ffff", "x" * 60 * 1024, "😀" * 15 * 1024, "\u2028" * 20 * 1024,
]  # fmt: skip
"""Each below an entry's 64 KiB."""


@pytest.mark.guarantee("G3")
async def test_a_page_sees_a_running_task_to_its_end(
    page: Page, site: PageServer, shop: Shop, merging_nothing: Worker, gates: Gates
) -> None:
    task_id = await shop.start(["say", "One "], ["wait", "go on"], ["say", "two"])
    await follow(page, site, shop.url, task_id, await shop.token(task_id))
    await page.until("texts.at(-1) === 'One '")
    gates.open("go on")
    await page.run("await followed")
    assert ids(await page.run("return seen")) == ["0-1", "1-1", "1-2", "1-3", "1-4"]
    assert await page.run("return texts") == ["", "", "One ", "One two", "One two"]
    assert (await page.run("return last"))["state"] == "completed"
    assert await page.run("return source.readyState") == CLOSED
    assert len(await page.sent("/events")) == 1


async def test_a_page_that_does_not_close_comes_back_once(page: Page, site: PageServer, shop: Shop, hand: HandWorker) -> None:
    hand.submit("t", payer=PAYER)
    hand.run("t", "x")
    await page.open(site.origin)
    url = f"{shop.url}/v1/tasks/t/events?token={await shop.token('t')}"
    await page.run("""
        window.states = []; window.heard = [];
        const source = new EventSource(given[0]);
        source.onmessage = ({ lastEventId }) => heard.push(lastEventId);
        source.onerror = () => states.push(source.readyState);
    """, url)  # fmt: skip
    await page.until(f"states.at(-1) === {CLOSED}")
    assert await page.run("return heard") == ["0-1", "1-1", "1-2", "1-3"]
    assert await page.run("return states") == [0, CLOSED]
    assert [request.headers.get("last-event-id") for request in await page.sent("/events")] == [None, "1-3"]


@pytest.mark.guarantee("G3")
async def test_a_page_that_is_cut_in_the_middle_of_events_sees_each_once(
    page: Page, site: PageServer, shop: Shop, hand: HandWorker
) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    hand.submit("t", payer=PAYER)
    hand.open("t")
    hand.say("t", *(f"<{number}>" * 40 for number in range(8)))
    token = await shop.token("t")
    gateway = shop.gateway.http
    assert gateway is not None
    async with CuttingProxy(gateway.port) as proxy:
        url = f"http://127.0.0.1:{proxy.port}"
        plain = await _answer(gateway.port, site.origin, f"/v1/tasks/t/events?token={token}")
        proxy.cut_down_after = plain.index(b"id: 1-3\n") + len(b"id: 1-3\n")  # the id came, its event did not
        await follow(page, site, url, "t", token)
        for number in range(1, 4):
            await eventually(lambda drops=number: proxy.drops == drops, f"cut {number}")  # type: ignore[misc]
            if number < 3:
                proxy.cut_down_after = plain.index(b"id: 0-1\n") + chance.randrange(200, 600)
        hand.finish("t", "1-10", "".join(f"<{number}>" * 40 for number in range(8)), chunks=8)
        await page.run("await followed")
    assert ids(await page.run("return seen")) == [entry_id for entry_id, _ in hand.entries("t")]
    cursors = [request.headers.get("last-event-id") for request in await page.sent("/events")]
    assert cursors[:2] == [None, "1-2"]
    assert len(cursors) == 4


async def _answer(port: int, origin: str, path: str) -> bytes:
    """What the gateway sends a page, byte by byte, as far as the eighth chunk."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\norigin: {origin}\r\n\r\n".encode())
        return await asyncio.wait_for(reader.readuntil(b"<7>"), 10)
    finally:
        writer.close()


@pytest.mark.guarantee("G3")
@pytest.mark.timeout(90)
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_a_page_follows_over_a_router_that_is_started_again(
    page: Page, site: PageServer, shop: Shop, http_settings: Settings, merging_nothing: Worker, gates: Gates, how: signal.Signals
) -> None:
    port = free_port()
    command = ["router", "--redis", http_settings.redis_url, "--database", str(http_settings.database_url)]
    env = {"SKILLSTREAM_SHARDS": str(http_settings.shards), "SKILLSTREAM_HTTP_CORS": site.origin}
    task_id = await shop.start(["say", "One "], ["wait", "go on"], ["say", "two"])
    with Process(*command, "--http", f"127.0.0.1:{port}", env=env) as first:
        await asyncio.to_thread(first.wait_for, "is ready")
        await follow(page, site, f"http://127.0.0.1:{port}", task_id, await shop.token(task_id))
        await page.until("texts.at(-1) === 'One '")
        first.send(how)
        await asyncio.to_thread(first.wait)
    gates.open("go on")
    while len(await page.sent("/events")) < 3:  # it came back to a port where nobody listens
        await page.until("source.readyState === EventSource.CONNECTING")
    with Process(*command, "--http", f"127.0.0.1:{port}", env=env) as second:
        await asyncio.to_thread(second.wait_for, "is ready")
        await page.run("await followed")
    assert ids(await page.run("return seen")) == ["0-1", "1-1", "1-2", "1-3", "1-4"]
    assert await page.run("return texts.at(-1)") == "One two"
    assert (await page.sent("/events"))[-1].headers["last-event-id"] == "1-2"


async def test_texts_arrive_unchanged(page: Page, site: PageServer, shop: Shop, merging_nothing: Worker) -> None:
    task_id = await shop.start(*(["say", text] for text in HARD))
    await follow(page, site, shop.url, task_id, await shop.token(task_id))
    await page.run("await followed")
    seen: list[dict[str, Any]] = await page.run("return seen")
    assert [event["text"] for event in seen if event["type"] == "chunk"] == HARD
    assert [seen[-1]["text"], *(await page.run("return texts.slice(-2)"))] == ["".join(HARD)] * 3


@pytest.mark.guarantee("G5")
async def test_an_attempt_that_starts_again_takes_its_text_back(
    page: Page, site: PageServer, shop: Shop, merging_nothing: Worker, gates: Gates
) -> None:
    task_id = await shop.start(["attempt", 1, ["say", "old"], ["wait", "again"], ["retry"]], ["say", "new"])
    await follow(page, site, shop.url, task_id, await shop.token(task_id))
    await page.until("texts.at(-1) === 'old'")
    gates.open("again")
    await page.run("await followed")
    texts: list[str] = await page.run("return texts")
    assert (texts[-1], texts.count("oldnew")) == ("new", 0)
    assert [text for before, text in zip(["", *texts], texts, strict=False) if text != before] == ["old", "", "new"]


@pytest.mark.guarantee("G5")
async def test_an_attempt_that_goes_on_keeps_whole_characters(
    page: Page, site: PageServer, shop: Shop, hand: HandWorker, outside: redis.Redis
) -> None:
    hand.submit("t", payer=PAYER)
    hand.open("t")
    hand.say("t", "😀😀old")
    await follow(page, site, shop.url, "t", await shop.token("t"))
    await page.until("texts.at(-1) === '😀😀old'")
    hand.open("t", 2, resume_from=3)
    hand.say("t", "n", attempt=2)
    await page.until("texts.at(-1).endsWith('n')")
    assert await page.run("return texts.slice(-3)") == ["😀😀o", "😀😀o", "😀😀on"]
    hand.finish("t", "2-3", "😀😀on", chunks=1)
    await page.run("await followed")
    assert await page.run("return texts.at(-1)") == "😀😀on"
