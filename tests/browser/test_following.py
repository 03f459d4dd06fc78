"""A page of another origin follows tasks with EventSource, by the code that docs/http.md shows."""

from __future__ import annotations

from typing import Any

import pytest

from skillstream_worker import Worker
from tests.support.verbs import Gates

from .chromium import Page
from .conftest import Shop, documented
from .page_server import PageServer

FOLLOW = """
const [id, token] = given;
window.seen = []; window.texts = []; window.tokens = 0;
window.followed = follow(id, () => { tokens += 1; return token; }, (text, event) => { texts.push(text); seen.push(event); })
  .then((last) => { window.last = last; }, (error) => { window.refusal = error.message; });
"""


def ids(events: list[dict[str, Any]]) -> list[str]:
    return [event.get("id", event["type"]) for event in events]


@pytest.mark.guarantee("G3")
async def test_a_page_sees_a_running_task_to_its_end(
    page: Page, site: PageServer, shop: Shop, merging_nothing: Worker, gates: Gates
) -> None:
    site.script = documented(shop.url)
    await page.open(site.origin)
    task_id = await shop.start(["say", "One "], ["wait", "go on"], ["say", "two"])
    await page.run(FOLLOW, task_id, await shop.token(task_id))
    await page.until("texts.at(-1) === 'One '")
    gates.open("go on")
    await page.run("await followed")
    seen = await page.run("return seen")
    assert ids(seen) == ["0-1", "1-1", "1-2", "1-3", "1-4"]
    assert await page.run("return texts") == ["", "", "One ", "One two", "One two"]
    assert (await page.run("return last"))["state"] == "completed"
    assert len(await page.sent(f"{task_id}/events")) == 1
