"""One run of numbered tokens as its HTTP client sees it, in each contender's protocol; httpx and one parser for all."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any

import httpx

_NUMBER = re.compile(r"t(\d+) ")


class RunRefused(Exception):
    """The server answered with an error, or closed the stream without an end."""


class Telling:
    """Responsible for one run of `count` tokens: what its client was sent, and the text that it holds.

    `begin` and `come_back` give a line for each answer that brought something; both end behind the run's end, which
    `finals` counts. `restored` counts tokens of its text that came again in a snapshot; `told_s` is when a new attempt was told.
    """

    def __init__(self, http: httpx.AsyncClient, count: int, delay_s: float, variant: str) -> None:
        self.http, self.count, self.delay_s, self.variant = http, count, delay_s, variant
        self.finals = self.restored = 0
        self.told_s = 0.0
        self._parts: list[str] = []

    @property
    def text(self) -> str:
        """The text that the client holds."""
        return "".join(self._parts)

    @property
    def numbers(self) -> list[int]:
        """The tokens of that text."""
        return self.numbers_of(self.text)

    @staticmethod
    def numbers_of(text: str) -> list[int]:
        """The tokens of a text."""
        return [int(number) for number in _NUMBER.findall(text)]

    @property
    def lost(self) -> int:
        """Tokens that the text lacks."""
        return len(set(range(self.count)) - set(self.numbers))

    @property
    def doubled(self) -> int:
        """Tokens that the text has twice."""
        return len(self.numbers) - len(set(self.numbers))

    def begin(self) -> AsyncGenerator[str, None]:
        """Submits the run and follows it."""
        return self._followed(self._submission())

    def come_back(self) -> AsyncGenerator[str, None]:
        """Follows it again, from where the client was."""
        return self._followed(self._return())

    def _submission(self) -> AbstractAsyncContextManager[httpx.Response]:
        """The request that submits and follows."""
        raise NotImplementedError

    def _return(self) -> AbstractAsyncContextManager[httpx.Response]:
        """The request that follows again."""
        raise NotImplementedError

    def _opened(self, response: httpx.Response) -> None:
        """Notes what the head of an answer tells."""

    def _take(self, place: str, data: str, kind: str) -> str:
        """Takes one event; returns its text."""
        raise NotImplementedError

    async def _followed(self, request: AbstractAsyncContextManager[httpx.Response]) -> AsyncGenerator[str, None]:
        async with request as response:
            if response.status_code >= 300:
                raise RunRefused(f"status {response.status_code}: {(await response.aread())[:200]!r}")
            self._opened(response)
            rest = ""
            async for received in response.aiter_text():
                *blocks, rest = (rest + received).replace("\r\n", "\n").split("\n\n")
                for block in blocks:
                    fields = dict(line.partition(": ")[::2] for line in block.split("\n"))
                    if "data" not in fields:
                        continue
                    text = self._take(fields.get("id", ""), fields["data"], fields.get("event", ""))
                    if text:
                        self._parts.append(text)
                        yield text
                    if self.finals:
                        return
        self._closed()

    def _closed(self) -> None:
        """The answer ended before an end of the run was seen."""
        raise RunRefused("the answer ended without the run's end")

    def _replace(self, text: str) -> None:
        """Has the client hold another text."""
        self._parts = [text]


class OurTelling(Telling):
    """Through this project's gateway."""

    _cursor, _task_id = "0", ""

    def _submission(self) -> AbstractAsyncContextManager[httpx.Response]:
        message = f"{self.count} {self.delay_s}"
        order = {"agent": "teller", "skill": self.variant, "message": message, "stream": True}
        return self.http.stream("POST", "/v1/tasks", json=order)

    def _return(self) -> AbstractAsyncContextManager[httpx.Response]:
        return self.http.stream("GET", f"/v1/tasks/{self._task_id}/events", headers={"last-event-id": self._cursor})

    def _opened(self, response: httpx.Response) -> None:
        self._task_id = response.headers["x-task-id"]

    def _take(self, place: str, data: str, kind: str) -> str:
        event = json.loads(data)
        self._cursor = place or self._cursor
        match event["type"]:
            case "chunk":
                return str(event["text"])
            case "reset":
                self.told_s = time.perf_counter()
                self._replace(self.text[: event["keep"]])
            case "final":
                if event["state"] != "completed" or event["text"] != self.text:
                    raise RunRefused(f"the run ended as {event['state']}, or its text is not the one that was followed")
                self.finals += 1
        return ""


class RecipeTelling(Telling):
    """Through FastAPI, arq and pub/sub."""

    _task_id = ""

    def _submission(self) -> AbstractAsyncContextManager[httpx.Response]:
        return self.http.stream("POST", "/tasks", params={"count": self.count, "delay_s": self.delay_s})

    def _return(self) -> AbstractAsyncContextManager[httpx.Response]:
        return self.http.stream("GET", f"/tasks/{self._task_id}")

    def _opened(self, response: httpx.Response) -> None:
        self._task_id = response.headers["x-task-id"]

    def _take(self, place: str, data: str, kind: str) -> str:
        if data == "[DONE]":
            self.finals += 1
            return ""
        return data


class A2aTelling(Telling):
    """Through a2a-sdk, JSON-RPC; a snapshot of the whole text replaces what the client holds."""

    _task_id = ""

    def _submission(self) -> AbstractAsyncContextManager[httpx.Response]:
        message = {"messageId": uuid.uuid4().hex, "role": "ROLE_USER", "parts": [{"text": f"{self.count} {self.delay_s}"}]}
        return self._call("SendStreamingMessage", {"message": message})

    def _return(self) -> AbstractAsyncContextManager[httpx.Response]:
        return self._call("SubscribeToTask", {"id": self._task_id})

    async def come_back(self) -> AsyncGenerator[str, None]:
        """Follows it again; a run that is over cannot be followed, and its task is asked for instead."""
        try:
            async with aclosing(self._followed(self._return())) as pieces:
                async for piece in pieces:
                    yield piece
        except RunRefused:
            async with self._call("GetTask", {"id": self._task_id}) as response:
                answer = json.loads(await response.aread())
            self._take_task(answer.get("result", {}))

    def _take(self, place: str, data: str, kind: str) -> str:
        answer = json.loads(data)
        if "error" in answer:
            raise RunRefused(str(answer["error"]["message"]))
        result = answer["result"]
        if update := result.get("artifactUpdate"):
            return "".join(part["text"] for part in update["artifact"]["parts"])
        if task := result.get("task"):
            self._take_task(task)
        self._note(result.get("statusUpdate", {}))
        return ""

    def _take_task(self, task: dict[str, Any]) -> None:
        self._task_id = task.get("id", self._task_id)
        if snapshot := "".join(part["text"] for artifact in task.get("artifacts", ()) for part in artifact["parts"]):
            self.restored += len(set(self.numbers).intersection(self.numbers_of(snapshot)))
            self._replace(snapshot)
        self._note(task)

    def _note(self, told: dict[str, Any]) -> None:
        self.finals += told.get("status", {}).get("state") == "TASK_STATE_COMPLETED"

    def _call(self, method: str, params: dict[str, Any]) -> AbstractAsyncContextManager[httpx.Response]:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return self.http.stream("POST", "/rpc", json=body, headers={"a2a-version": "1.0"})


class LanggraphTelling(Telling):
    """Through `langgraph dev`; the close of its stream is the only sign of an end."""

    _cursor, _path = "", ""

    def _submission(self) -> AbstractAsyncContextManager[httpx.Response]:
        order = {
            "assistant_id": "teller", "input": {"count": self.count, "delay_s": self.delay_s}, "stream_mode": "custom",
            "stream_resumable": True, "on_disconnect": "continue", "if_not_exists": "create",
        }  # fmt: skip
        return self.http.stream("POST", f"/threads/{uuid.uuid4()}/runs/stream", json=order)

    def _return(self) -> AbstractAsyncContextManager[httpx.Response]:
        return self.http.stream("GET", f"{self._path}/stream", headers={"last-event-id": self._cursor})

    def _opened(self, response: httpx.Response) -> None:
        self._path = response.headers.get("content-location", self._path).removesuffix("/stream")

    def _take(self, place: str, data: str, kind: str) -> str:
        self._cursor = place or self._cursor
        if kind == "error":
            raise RunRefused(data[:200])
        return str(json.loads(data)) if kind == "custom" else ""

    def _closed(self) -> None:
        self.finals += 1


DIALECTS: dict[str, type[Telling]] = {
    "skillstream": OurTelling,
    "recipe": RecipeTelling,
    "a2a": A2aTelling,
    "langgraph": LanggraphTelling,
}
