"""Tasks, contexts and agents over HTTP: asked for, looked at, cancelled."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import httpx
import pytest
import redis

from skillstream_router.store import Store, TaskRecord, Turns
from skillstream_router.store.gateway import PAGE_CHARS
from skillstream_schemas.settings import Settings
from skillstream_schemas.state import TaskState
from skillstream_worker import Worker
from tests.client.hand_worker import HandWorker
from tests.router.eventually import eventually
from tests.router.ledger_file import LedgerFile
from tests.support.verbs import AGENT, Gates, script

from .conftest import CallerAs
from .sse import error_of, read_all


def order(*verbs: list[Any], **more: Any) -> dict[str, Any]:
    return {"agent": AGENT, "skill": "stream", "message": script(*verbs), **more}


async def submit(http: httpx.AsyncClient, *verbs: list[Any], **more: Any) -> str:
    response = await http.post("/v1/tasks", json=order(*verbs, **more))
    assert response.status_code == 202, response.text
    return str(response.json()["id"])


async def test_a_context_is_not_claimed_by_an_order_that_is_refused(caller_as: CallerAs, hand: HandWorker) -> None:
    acme, other = await caller_as("acme"), await caller_as("other")
    good = {"agent": "echo", "skill": "say", "message": "x", "context_id": "chat"}
    assert (await acme.post("/v1/tasks", json={**good, "context_id": "acme", "task_id": "t"})).status_code == 202
    refused: list[dict[str, Any]] = [
        {"agent": "nobody"}, {"skill": "fly"}, {"message": "x" * (1024 * 1024 + 1)}, {"task_id": "t"}, {"task_id": "a b"},
        {"delay_s": -1}, {"follows": "t"}, {"sender_id": "\ud800"}, {"deadline": "2030-01-01T00:00:00"},
    ]  # fmt: skip
    for change in refused:
        response = await other.post(
            "/v1/tasks", content=json.dumps({**good, **change}), headers={"content-type": "application/json"}
        )
        assert response.status_code >= 400, change
    assert (await acme.post("/v1/tasks", json=good)).status_code == 202
    assert error_of(await other.post("/v1/tasks", json=good)) == (404, "unknown_context")


async def test_a_task_is_submitted_followed_and_looked_at(
    http: httpx.AsyncClient, worker: Worker, ledger_file: LedgerFile, outside: redis.Redis, http_settings: Settings
) -> None:
    response = await http.post("/v1/tasks", json=order(["say", "one "], ["say", "two"], context_id="chat", payer="acme"))
    told = response.json()
    assert response.headers["location"] == f"/v1/tasks/{told['id']}"
    events = await read_all(http, told["id"])
    assert [event["type"] for event in events][:: len(events) - 1] == ["status", "final"]
    assert "".join(event["text"] for event in events if event["type"] == "chunk") == events[-1]["text"] == "one two"
    shown = (await http.get(f"/v1/tasks/{told['id']}")).json()
    assert (shown["state"], shown["text"], shown["payer"], shown["attempt"]) == ("completed", "one two", "acme", 1)
    await eventually(lambda: ledger_file.task(told["id"]).get("state") == "completed", "the database has it")
    outside.delete(http_settings.keys.events(told["id"]))
    kept = (await http.get(f"/v1/tasks/{told['id']}")).json()
    assert kept == {name: value for name, value in shown.items() if name in kept}
    assert set(shown) - set(kept) == set()


async def test_the_answer_of_a_submission_may_be_its_events(http: httpx.AsyncClient, worker: Worker) -> None:
    async with http.stream("POST", "/v1/tasks", json=order(["say", "x"], stream=True)) as response:
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        text = (await response.aread()).decode()
    events = await read_all(http, response.headers["x-task-id"])
    assert [line for line in text.splitlines() if line.startswith("id:")] == [f"id: {event['id']}" for event in events]


@pytest.mark.guarantee("G6")
async def test_the_same_id_again_runs_nothing_twice(http: httpx.AsyncClient, worker: Worker, gates: Gates) -> None:
    for _ in range(2):
        assert await submit(http, ["say", "x"], task_id="once") == "once"
    await read_all(http, "once")
    assert len(gates.contexts) == 1
    refused = await http.post("/v1/tasks", json=order(["say", "other"], task_id="once"))
    assert error_of(refused) == (409, "task_id_taken")


@pytest.mark.guarantee("G9")
async def test_a_running_task_is_cancelled_and_keeps_its_text(http: httpx.AsyncClient, worker: Worker, gates: Gates) -> None:
    task_id = await submit(http, ["say", "part"], ["reach", "running"], ["wait", "never"])
    await gates.reached("running")
    response = await http.post(f"/v1/tasks/{task_id}/cancel", json={"reason": "enough"})
    told = response.json()
    assert (response.status_code, told["state"], told["reason"], told["text"]) == (200, "canceled", "enough", "part")
    again = await http.post(f"/v1/tasks/{task_id}/cancel")
    assert (again.status_code, again.json()) == (200, told)


async def test_a_queued_task_is_cancelled_without_any_worker(http: httpx.AsyncClient, hand: HandWorker) -> None:
    response = await http.post("/v1/tasks", json={"agent": "echo", "skill": "say", "message": "x"})
    task_id = response.json()["id"]
    assert (await http.post(f"/v1/tasks/{task_id}/cancel")).json()["state"] == "canceled"
    assert hand.queued() == {}


async def test_a_cancellation_that_is_not_answered_in_time_stands(http: httpx.AsyncClient, hand: HandWorker) -> None:
    hand.submit("t")
    hand.open("t")
    response = await http.post("/v1/tasks/t/cancel", json={"timeout_s": 0})
    assert (response.status_code, response.json()["state"]) == (202, "working")
    hand.finish("t", "1-2", "", chunks=0, state="canceled")
    assert (await http.get("/v1/tasks/t")).json()["state"] == "canceled"


async def test_agents_are_listed_with_their_skills(http: httpx.AsyncClient, worker: Worker) -> None:
    (agent,) = (await http.get("/v1/agents")).json()["agents"]
    assert (agent["name"], agent["workers"]) == (AGENT, 1)
    assert {skill["name"]: skill["streaming"] for skill in agent["skills"]} == {"stream": True, "plain": False}


def _is_completed(ledger_file: LedgerFile, task_id: str) -> bool:
    return ledger_file.state(task_id) == "completed"


async def test_a_conversation_is_read_in_pages(http: httpx.AsyncClient, worker: Worker, ledger_file: LedgerFile) -> None:
    for number in range(3):
        await submit(http, ["say", f"answer {number}"], context_id="chat", task_id=f"t{number}")
        await eventually(partial(_is_completed, ledger_file, f"t{number}"), "it is in the database")
    texts: list[str] = []
    after: int | None = 0
    while after is not None:
        page = (await http.get("/v1/contexts/chat/messages", params={"after": after, "limit": 4})).json()
        texts += [message["text"] for message in page["messages"] if message["role"] == "agent"]
        after = page.get("next_after")
    assert texts == ["answer 0", "answer 1", "answer 2"]
    assert error_of(await http.get("/v1/contexts/other/messages")) == (404, "unknown_context")


async def test_a_page_goes_on_behind_its_cursor_where_a_turn_was_recorded_late(
    http: httpx.AsyncClient, http_settings: Settings
) -> None:
    async def read(**parameters: int) -> dict[str, Any]:
        response = await http.get("/v1/contexts/chat/messages", params=parameters)
        page: dict[str, Any] = response.json()
        return page | {"texts": [message["text"] for message in page["messages"]]}

    def turn(number: int) -> Turns:
        record = TaskRecord(
            id=f"t{9 - number}", state=TaskState.COMPLETED, agent="poet", skill="rhyme", submitted_at=number, attempt=1,
            context_id="chat", finished_at=10 + number, last_event_id="1-2",
        )  # fmt: skip
        return Turns(record, f"ask {number}", f"say {number}")

    store = await Store(http_settings).open()
    await store.apply([turn(2), turn(4)])
    first = await read(limit=3)
    assert first["texts"] == ["ask 2", "say 2", "ask 4"]
    await store.apply([turn(1), turn(3), turn(5)])
    await store.close()
    rest = await read(after=first["next_after"], limit=3)
    assert (rest["texts"], "next_after" in rest) == (["say 4", "ask 5", "say 5"], True)
    assert await read(after=rest["next_after"]) == {"context_id": "chat", "messages": [], "texts": []}
    assert (await read())["texts"] == [f"{verb} {number}" for number in range(1, 6) for verb in ("ask", "say")]
    assert error_of(await http.get("/v1/contexts/chat/messages?after=99")) == (422, "invalid_request")
    assert error_of(await http.get("/v1/contexts/other/messages?after=99")) == (404, "unknown_context")


async def test_a_page_of_a_conversation_is_bounded_in_size(http: httpx.AsyncClient, http_settings: Settings) -> None:
    store = await Store(http_settings).open()
    for number in range(3):
        record = TaskRecord(
            id=f"t{number}", state=TaskState.COMPLETED, agent="poet", skill="rhyme", submitted_at=number, attempt=1,
            context_id="long", finished_at=10 + number, last_event_id="1-2",
        )  # fmt: skip
        await store.apply([Turns(record, "ask", "x" * (PAGE_CHARS // 2))])
    await store.close()
    pages: list[list[str]] = []
    after: int | None = 0
    while after is not None:
        page = (await http.get("/v1/contexts/long/messages", params={"after": after})).json()
        pages.append([message["role"] for message in page["messages"]])
        after = page.get("next_after")
    assert pages == [["user", "agent", "user"], ["agent", "user"], ["agent"]]


async def test_a_caller_sees_its_own_alone(caller_as: CallerAs, worker: Worker, ledger_file: LedgerFile) -> None:
    acme, other = await caller_as("acme"), await caller_as("other")
    task_id = await submit(acme, ["say", "secret"], context_id="acme-chat")
    await read_all(acme, task_id)
    await eventually(lambda: ledger_file.state(task_id) == "completed", "it is in the database")
    assert ledger_file.task(task_id)["payer"] == "acme"
    paths = [("GET", "/v1/tasks/{}"), ("GET", "/v1/tasks/{}/events"), ("POST", "/v1/tasks/{}/cancel"),
             ("POST", "/v1/tasks/{}/token")]  # fmt: skip
    for method, path in paths:
        foreign = await other.request(method, path.format(task_id))
        unknown = await other.request(method, path.format("f" * len(task_id)))
        assert error_of(foreign) == (404, "unknown_task"), path
        assert foreign.text.replace(task_id, "") == unknown.text.replace("f" * len(task_id), ""), path
    foreign = await other.get("/v1/contexts/acme-chat/messages")
    assert error_of(foreign) == (404, "unknown_context")
    assert foreign.text.replace("acme-chat", "") == (await other.get("/v1/contexts/none/messages")).text.replace("none", "")
    assert len((await acme.get("/v1/contexts/acme-chat/messages")).json()["messages"]) == 2


async def test_nobody_enters_a_foreign_conversation(caller_as: CallerAs, worker: Worker, gates: Gates) -> None:
    acme, other = await caller_as("acme"), await caller_as("other")
    task_id = await submit(acme, ["say", "secret"], context_id="acme-chat")
    await read_all(acme, task_id)
    for more in ({"context_id": "acme-chat"}, {"follows": task_id}):
        refused = await other.post("/v1/tasks", json=order(["say", "x"], **more))
        assert refused.status_code == 404, refused.text
    taken = await other.post("/v1/tasks", json=order(["say", "x"], task_id=task_id))
    assert error_of(taken) == (409, "task_id_taken")
    assert "stream" not in taken.text
    assert AGENT not in taken.text
    assert len(gates.contexts) == 1


async def test_a_key_pays_for_its_own_payer_alone(caller_as: CallerAs, worker: Worker) -> None:
    acme = await caller_as("acme")
    refused = await acme.post("/v1/tasks", json=order(["say", "x"], payer="other"))
    assert error_of(refused) == (422, "invalid_request")
    await read_all(acme, await submit(acme, ["say", "x"], payer="acme"))


async def test_a_conversation_of_another_door_stays_its_owners(
    caller_as: CallerAs, hand: HandWorker, ledger_file: LedgerFile, http_settings: Settings
) -> None:
    other = await caller_as("other")
    hand.submit("t", context_id="direct", payer="acme")
    hand.run("t", "x")
    hand._outside.xadd(http_settings.keys.inbox_of("t"), {"task": "t", "kind": "final"})
    await eventually(lambda: ledger_file.task("t").get("state") == "completed", "it is in the database")
    refused = await other.post("/v1/tasks", json={"agent": "echo", "skill": "say", "message": "x", "context_id": "direct"})
    assert error_of(refused) == (404, "unknown_context")
