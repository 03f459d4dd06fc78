"""A hub on loopback, made from what is known of the real one: token, registration, `task.execute`, answers to frames."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from skillstream_router.connect.hub import HubAddress

KEY = "key-of-the-account"
BOUND_S = 10.0
Frame = dict[str, Any]


@dataclass(frozen=True)
class Cut:
    """Drop the connection before or after the frame with this number, counted over both directions from 0; once."""

    number: int
    when: str


class StubHub:
    """Responsible for the hub's side. A task whose `task.execute` was not answered is executed again at the next registration.

    `frames` are all that passed, in order, as (connection, "in" or "out", frame), without heartbeats. Switches: `cuts`,
    `answers_status`, `silences` (completions left unanswered), `completion_errors` (sent before the first result),
    `refuses_key`, `registration_error`, `takes_no_connection`.
    """

    def __init__(self, cut: Cut | None = None) -> None:
        self.cut = cut
        self.frames: list[tuple[int, str, Frame]] = []
        self.answers_status = True
        self.silences = 0
        self.completion_errors: list[int] = []
        self.refuses_key = False
        self.registration_error: str | None = None
        self.takes_no_connection = False
        self.connections = 0
        self.heartbeats = 0
        self.executed: dict[str, Frame] = {}
        self.execute_answers: dict[Any, Frame] = {}
        self.registered = asyncio.Event()
        self._changed = asyncio.Event()
        self._socket: ServerConnection | None = None
        self._server: Server | None = None
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._token_handler())
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)

    async def __aenter__(self) -> Self:
        self._thread.start()
        self._server = await serve(self._accept, "127.0.0.1", 0, ping_interval=None)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()
        await asyncio.to_thread(self._http.shutdown)
        self._http.server_close()

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"ws://127.0.0.1:{next(iter(self._server.sockets)).getsockname()[1]}/agents"

    @property
    def api_url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    @property
    def address(self) -> HubAddress:
        return HubAddress(self.url, KEY, self.api_url)

    def received(self, method: str, hub_task: str | None = None) -> list[Frame]:
        """Calls that came in, in order."""
        calls = [frame for _, way, frame in self.frames if way == "in" and frame.get("method") == method]
        return [call for call in calls if hub_task is None or call["params"]["task_id"] == hub_task]

    async def execute(self, hub_task: str, text: str, *, rpc_id: Any = None, session: str | None = None, **params: Any) -> None:
        """Has the agent run a task, as soon as it is registered."""
        message = {"role": "user", "parts": [{"type": "text", "text": text}]}
        content: Frame = {"id": hub_task, "message": message, "metadata": {"chat_id": "c1"}, **params}
        if session is not None:
            content["sessionId"] = session
        rpc_id = f"x-{hub_task}" if rpc_id is None else rpc_id
        self.executed[rpc_id] = {"jsonrpc": "2.0", "id": rpc_id, "method": "task.execute", "params": content}
        if self.registered.is_set():
            await self.say(self.executed[rpc_id])

    async def say(self, frame: Frame | str | bytes) -> None:
        """Sends a frame, or something that is none, on the registered connection."""
        await asyncio.wait_for(self.registered.wait(), BOUND_S)
        assert self._socket is not None
        await self._send(self._socket, frame)

    async def drop(self) -> None:
        """Breaks the connection."""
        if self._socket is not None:
            self.registered.clear()
            self._socket.transport.abort()

    async def until(self, condition: Callable[[], object], what: str, bound_s: float = 2 * BOUND_S) -> None:
        """Waits until something that has to do with frames is true."""
        try:
            async with asyncio.timeout(bound_s):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            shown = "\n".join(f"{number} {way} {json.dumps(frame)[:200]}" for number, way, frame in self.frames[-40:])
            raise AssertionError(f"not within {bound_s} s: {what}; the last frames:\n{shown}") from None

    async def completed(self, hub_task: str) -> Frame:
        """The parameters of the completion of a task, once it was answered with a result."""

        def answered() -> bool:
            ids = {call["id"] for call in self.received("task.complete", hub_task)}
            return any(way == "out" and frame.get("id") in ids and "result" in frame for _, way, frame in self.frames)

        await self.until(answered, f"the completion of {hub_task} is acknowledged")
        params: Frame = self.received("task.complete", hub_task)[-1]["params"]
        return params

    async def _accept(self, socket: ServerConnection) -> None:
        if self.takes_no_connection:
            socket.transport.abort()
            return
        self.connections += 1
        try:
            await self._send(socket, {"jsonrpc": "2.0", "method": "connection.established", "params": {"connection_id": "c"}})
            async for raw in socket:
                frame = json.loads(raw)
                if frame.get("method") in ("heartbeat", "heartbeat_ack"):
                    self.heartbeats += 1
                    self._changed.set()
                    continue
                self._pass("in", frame, socket, "before")
                self.frames.append((self.connections, "in", frame))
                self._pass("in", frame, socket, "after")
                self._changed.set()
                await self._answer(socket, frame)
        except (ConnectionClosed, ConnectionAbortedError):
            pass
        finally:
            if self._socket is socket:
                self.registered.clear()
                self._socket = None
            self._changed.set()

    async def _answer(self, socket: ServerConnection, frame: Frame) -> None:
        match frame:
            case {"method": "agent.register", "id": rpc_id, "params": {"auth_token": "token-1"}}:
                if self.registration_error is not None:
                    await self._send(socket, _result(rpc_id, {"registered": False, "error": self.registration_error}))
                    return
                await self._send(socket, _result(rpc_id, {"registered": True, "agent_id": "a1"}))
                self._socket = socket
                self.registered.set()
                for call in list(self.executed.values()):
                    if call["id"] not in self.execute_answers:
                        await self._send(socket, call)
            case {"method": "task.status", "id": rpc_id}:
                if self.answers_status:
                    await self._send(socket, _result(rpc_id, {}))
            case {"method": "task.complete", "id": rpc_id}:
                if self.silences:
                    self.silences -= 1
                elif self.completion_errors:
                    error = {"code": self.completion_errors.pop(0), "message": "later"}
                    await self._send(socket, {"jsonrpc": "2.0", "id": rpc_id, "error": error})
                else:
                    await self._send(socket, _result(rpc_id, {}))
            case {"id": rpc_id} if "method" not in frame and rpc_id in self.executed:
                self.execute_answers[rpc_id] = frame

    async def _send(self, socket: ServerConnection, frame: Frame | str | bytes) -> None:
        shown = frame if isinstance(frame, dict) else {"raw": str(frame)[:80]}
        self._pass("out", shown, socket, "before")
        await socket.send(json.dumps(frame) if isinstance(frame, dict) else frame)
        self.frames.append((self.connections, "out", shown))
        self._pass("out", shown, socket, "after")
        self._changed.set()

    def _pass(self, way: str, frame: Frame, socket: ServerConnection, when: str) -> None:
        number = len(self.frames) if when == "before" else len(self.frames) - 1
        if self.cut is not None and (self.cut.number, self.cut.when) == (number, when):
            self.cut = None
            socket.transport.abort() if when == "before" or way == "in" else socket.transport.close()
            raise ConnectionAbortedError

    def _token_handler(self) -> type[BaseHTTPRequestHandler]:
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
                right = self.path == "/auth/agent-token" and asked == {"api_key": KEY} and not hub.refuses_key
                body = json.dumps(
                    {"token": "token-1", "expires_in": 900, "agent_id": "a1"} if right else {"error": "no"}
                ).encode()
                self.send_response(200 if right else 401)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        return Handler


def _result(rpc_id: Any, result: Frame) -> Frame:
    return {"jsonrpc": "2.0", "id": rpc_id, "result": result}


def text_of(params: Frame) -> str:
    """The text of a status or a completion."""
    return "".join(part["text"] for part in params["status"]["message"]["parts"] if part["type"] == "text")
