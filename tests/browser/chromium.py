"""A real Chromium without a window, driven over WebDriver."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Chrome, ChromeOptions, ChromeService

from .page_server import HOST

PATIENCE_S = 20.0
"""How long a page may take for what a test waits for; a browser that was cut comes back after a second or more."""
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--no-proxy-server",
    f"--host-resolver-rules=MAP {HOST} 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)  # fmt: skip
_RUN = """
const [given, done] = arguments;
(async () => { %s })().then((value) => done({ value }), (error) => done({ error: `${error}` }));
"""


@dataclass(frozen=True, slots=True)
class Request:
    """A request as Chromium sent it; names of headers are in lower case. One that reached nobody has none."""

    method: str
    url: str
    headers: dict[str, str]


class PageError(Exception):
    """What a script of a page threw."""


@contextmanager
def chromium(profile: Path) -> Iterator[Chrome]:
    """A Chromium with an empty profile that reaches this machine alone; skips the test where there is none on PATH."""
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if browser is None or driver is None:
        pytest.skip("no chromium and chromedriver on PATH: apt-get install chromium chromium-driver")
    options = ChromeOptions()
    options.binary_location = browser
    for flag in (*_FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL"})
    opened = Chrome(options, ChromeService(driver))
    try:
        opened.set_script_timeout(PATIENCE_S)
        opened.set_page_load_timeout(PATIENCE_S)
        yield opened
    finally:
        opened.quit()


class Page:
    """Responsible for one page at a time: opens it, runs scripts in it, tells what it sent."""

    def __init__(self, browser: Chrome) -> None:
        self._browser = browser
        self._sent: list[Request] = []
        self._headers: defaultdict[str, dict[str, str]] = defaultdict(dict)

    async def open(self, url: str) -> None:
        """Goes to a page; what was sent before is forgotten."""
        await asyncio.to_thread(self._browser.get, "about:blank")  # ends all that the page before has open
        await self.sent()
        self._sent.clear()
        await asyncio.to_thread(self._browser.get, url)

    async def run(self, script: str, *given: Any) -> Any:
        """What the body of an async function returns that finds its arguments in `given`; raises PageError."""
        answer = await asyncio.to_thread(self._browser.execute_async_script, _RUN % script, given)
        if "error" in answer:
            raise PageError(answer["error"])
        return answer.get("value")

    async def until(self, condition: str) -> None:
        """Comes back once an expression is true in the page."""
        await self.run(f"while (!({condition})) await new Promise((wake) => setTimeout(wake, 5));")

    async def sent(self, path: str = "") -> list[Request]:
        """The requests of the page whose URL has `path` in it, in order."""
        for entry in await asyncio.to_thread(self._browser.get_log, "performance"):
            message = json.loads(entry["message"])["message"]
            params = message["params"]
            if message["method"] == "Network.requestWillBeSent":
                request = params["request"]
                self._sent.append(Request(request["method"], request["url"], self._headers[params["requestId"]]))
            elif message["method"] == "Network.requestWillBeSentExtraInfo":  # what went over the wire, in no certain order
                self._headers[params["requestId"]] |= {name.lower(): value for name, value in params["headers"].items()}
        return [request for request in self._sent if path in request.url]
