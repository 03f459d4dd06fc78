"""Pages of another origin that call the gateway with fetch and an API key."""

from __future__ import annotations

from typing import Any

import redis

from skillstream_schemas.settings import Settings
from skillstream_worker import Worker
from tests.http.conftest import StartGateway, make_key
from tests.support.verbs import AGENT, Gates, script

from .chromium import Page
from .conftest import PAYER, Shop
from .page_server import PageServer

_POST = """
const [url, key, order] = given;
const headers = { "content-type": "application/json", ...(key && { authorization: `Bearer ${key}` }) };
const post = (path, body) => fetch(url + path, { method: "POST", headers, body: JSON.stringify(body) });
"""
_READ = """
const answer = await post("/v1/chat/completions", order);
const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
window.read = "";
window.over = (async () => {
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    read += value;
  }
})();
return [answer.status, answer.headers.get("content-type"), answer.headers.get("x-task-id")];
"""


def order(*verbs: list[Any]) -> dict[str, object]:
    return {"agent": AGENT, "skill": "stream", "message": script(*verbs)}


def key_of(shop: Shop) -> str:
    return str(shop.service.headers["authorization"]).removeprefix("Bearer ")


async def test_a_page_submits_with_a_key(page: Page, site: PageServer, shop: Shop, merging_nothing: Worker) -> None:
    await page.open(site.origin)
    script = """
        const answer = await post("/v1/tasks", order);
        return [answer.status, await answer.json(), answer.headers.get("x-task-id"), answer.headers.get("location")];
    """
    status, task, named, location = await page.run(_POST + script, shop.url, key_of(shop), order(["say", "x"]))
    assert (status, task["payer"], named, location) == (202, PAYER, task["id"], f"/v1/tasks/{task['id']}")
    assert sorted(request.method for request in await page.sent("/v1/tasks")) == ["OPTIONS", "POST"]
    refused = "const answer = await post('/v1/tasks', order); return [answer.status, (await answer.json()).error.code];"
    assert await page.run(_POST + refused, shop.url, "sk-none", order()) == [401, "unauthorized"]


async def test_a_page_reads_a_chat_completion_as_it_comes(
    page: Page, site: PageServer, shop: Shop, merging_nothing: Worker, gates: Gates
) -> None:
    await page.open(site.origin)
    verbs = script(["say", "One\u2028"], ["wait", "go on"], ["say", "😀two"])
    asked = {"model": f"{AGENT}/stream", "messages": [{"role": "user", "content": verbs}], "stream": True}
    status, kind, task_id = await page.run(_POST + _READ, shop.url, key_of(shop), asked)
    assert (status, kind.partition(";")[0]) == (200, "text/event-stream")
    await page.until(r"read.includes('One\\u2028')")
    assert not await page.run("return read.includes('two')")
    gates.open("go on")
    await page.run("await over")
    deltas = """
        const blocks = read.split("\\n\\n").filter((block) => block.startsWith("data: {"));
        return blocks.map((block) => JSON.parse(block.slice(6)).choices[0]?.delta.content ?? "").join("");
    """
    assert await page.run(deltas) == "One\u2028😀two"
    assert await page.run("return read.endsWith('data: [DONE]\\n\\n')")
    assert (await shop.service.get(f"/v1/tasks/{task_id}")).json()["text"] == "One\u2028😀two"


async def test_a_page_of_an_origin_that_is_not_named_sends_nothing(
    page: Page, site: PageServer, start_gateway: StartGateway, http_settings: Settings, outside: redis.Redis
) -> None:
    key = await make_key(http_settings, PAYER)
    for cors in ((), ("https://another.example",)):
        gateway = await start_gateway(http_cors=cors)
        assert gateway.http is not None
        await page.open(site.origin)
        refused = "return await post('/v1/tasks', order).then(() => 'let in', (error) => error.name);"
        assert await page.run(_POST + refused, gateway.http.url, key, order()) == "TypeError"
    assert outside.keys("skillstream:task:*") == []


async def test_a_page_of_another_site_does_nothing_at_an_open_gateway(
    page: Page, site: PageServer, start_gateway: StartGateway, outside: redis.Redis
) -> None:
    gateway = await start_gateway()
    assert gateway.http is not None
    await page.open(site.origin)
    for mode in ("no-cors", "cors"):  # a body of text needs no preflight
        sent = "await fetch(given[0] + '/v1/tasks', { method: 'POST', mode: given[1], body: given[2] }).catch(() => null);"
        await page.run(sent, gateway.http.url, mode, '{"agent":"a","skill":"s","message":"m"}')
    assert len(await page.sent("/v1/tasks")) == 2
    assert outside.keys("skillstream:task:*") == []
