"""Fixtures of the tests with a browser: those of the gateway, a page of another origin, a worker that merges nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from selenium.webdriver import Chrome

from skillstream_router.app import Router
from skillstream_schemas.settings import Settings
from skillstream_worker import Chunking, Worker
from tests.http.conftest import StartGateway, caller, gates, hand, http_settings, ledger_file, make_key, server_url, start_gateway
from tests.support.documentation import block
from tests.support.verbs import AGENT, Gates, script, verb_agent

from .chromium import Page, chromium
from .page_server import PageServer

__all__ = ["gates", "hand", "http_settings", "ledger_file", "server_url", "start_gateway"]
PAYER = "acme"
THEIRS = "https://tasks.example"
"""Where the documentation's gateway is."""


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    """One Chromium for all tests."""
    with chromium(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture
async def page(browser: Chrome) -> AsyncIterator[Page]:
    """A page, closed after the test."""
    opened = Page(browser)
    yield opened
    await opened.open("about:blank")


@pytest.fixture
def site() -> Iterator[PageServer]:
    """What serves the page."""
    with PageServer() as server:
        yield server


@pytest.fixture
async def merging_nothing(settings: Settings, gates: Gates) -> AsyncIterator[Worker]:
    """A running worker of the agent `verbs`; each yield is an entry."""
    async with Worker([verb_agent(gates, chunking=Chunking.off())], settings, name="w1") as running:
        yield running


@dataclass(frozen=True, slots=True)
class Shop:
    """A gateway with keys that lets the page's origin in, and the service behind the page, which has a key."""

    gateway: Router
    service: httpx.AsyncClient

    @property
    def url(self) -> str:
        """Where the gateway answers."""
        assert self.gateway.http is not None
        return self.gateway.http.url

    async def start(self, *verbs: list[Any]) -> str:
        """The id of a new task that does what the verbs say."""
        order = {"agent": AGENT, "skill": "stream", "message": script(*verbs)}
        answer = await self.service.post("/v1/tasks", json=order)
        return str(answer.raise_for_status().json()["id"])

    async def token(self, task_id: str, ttl_s: int = 600) -> str:
        """A read token for a task."""
        answer = await self.service.post(f"/v1/tasks/{task_id}/token", json={"ttl_s": ttl_s})
        return str(answer.raise_for_status().json()["token"])


@pytest.fixture
async def shop(start_gateway: StartGateway, http_settings: Settings, site: PageServer) -> AsyncIterator[Shop]:
    """The gateway and the service."""
    key = await make_key(http_settings, PAYER)
    gateway = await start_gateway(http_cors=(site.origin,))
    async with caller(gateway, key) as service:
        yield Shop(gateway, service)


def documented(gateway_url: str) -> str:
    """The function `follow` of docs/http.md, for a gateway of ours."""
    script = block("docs/http.md", "new EventSource(", "js")
    assert script.count(THEIRS) == 1
    return script.replace(THEIRS, gateway_url)


_FOLLOW = """
const [id, token] = given;
const Native = window.EventSource;
window.EventSource = class extends Native { constructor(...of) { super(...of); window.source = this; } };
window.seen = []; window.texts = []; window.tokens = [];
window.tokenOf = async () => { tokens.push(token); return token; };
window.followed = follow(id, (task) => tokenOf(task), (text, event) => { texts.push(text); seen.push(event); })
  .then((last) => { window.last = last; }, (error) => { window.refusal = error.message; });
"""


async def follow(page: Page, site: PageServer, gateway_url: str, task_id: str, token: str) -> None:
    """Has a page follow a task by the documentation's code.

    In the page, `seen` are the events, `texts` what was shown with each, `tokens` those asked for, `source` is the newest
    EventSource; `followed` ends with the task, as `last` has it, or with a `refusal`.
    """
    site.script = documented(gateway_url)
    await page.open(site.origin)
    await page.run(_FOLLOW, task_id, token)


def ids(events: list[dict[str, Any]]) -> list[str]:
    """Ids of events, and the types of those that have none."""
    return [event.get("id", event["type"]) for event in events]
