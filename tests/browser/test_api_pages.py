"""What a person sees who opens the gateway's own pages."""

from __future__ import annotations

from tests.http.conftest import StartGateway

from .chromium import Page


async def test_the_page_of_the_api_says_where_else_to_look_on_a_closed_network(page: Page, start_gateway: StartGateway) -> None:
    gateway = await start_gateway()
    assert gateway.http is not None
    await page.open(f"{gateway.http.url}/docs")
    assert "cdn.jsdelivr.net" in await page.run("return document.body.innerText")
    await page.run("document.querySelector('#swagger-ui a').click()")
    await page.until("location.pathname === '/openapi.json' && document.readyState === 'complete'")
    assert "/v1/tasks/{task_id}/events" in await page.run("return Object.keys(JSON.parse(document.body.innerText).paths)")
    assert {request.url.split("/")[2] for request in await page.sent()} <= {
        gateway.http.url.removeprefix("http://"), "cdn.jsdelivr.net"
    }  # fmt: skip
