"""One agent's connection to the hub: signs in, registers, keeps it alive, comes back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI

from skillstream.breaking_off import break_off
from skillstream_router.connect.backoff import Backoff
from skillstream_router.connect.broker import ConnectBroker
from skillstream_router.json_rpc import METHOD_NOT_FOUND, Frame, RpcId, call_frame, error_frame
from skillstream_schemas.connect_errors import HubRefused, HubUnavailable
from skillstream_schemas.errors import SkillstreamError, UnknownAgent
from skillstream_schemas.json_text import json_text
from skillstream_schemas.limits import MAX_BYTES

from .frames import Answer, Call, Garbage, read_frame, register_frame
from .sign_in import REFUSED, HubAddress, fetch_token

log = logging.getLogger(__name__)
_OWNERSHIP = ("owned by another user", "routing id mismatch")
"""Words of a refused registration that no later try changes."""


@dataclass(frozen=True, slots=True)
class HubPace:
    """How long the connector waits, in seconds: for the hub's words, between heartbeats, before it comes back or says again."""

    answer_s: float = 15.0
    heartbeat_s: float = 30.0
    silence_s: float = 90.0
    again_s: float = 15.0
    longest_again_s: float = 120.0
    reconnect_s: float = 1.0
    longest_reconnect_s: float = 60.0


class HubLink:
    """Responsible for one registered connection at a time.

    `on_call` takes the hub's requests and must not wait. `up` is set while the agent is registered; `generation` counts
    registrations; `acknowledges_status` says whether this hub answers a `task.status`, None until it has shown.
    """

    def __init__(
        self,
        address: HubAddress,
        agent: str,
        broker: ConnectBroker,
        http: httpx.AsyncClient,
        pace: HubPace,
        visibility: str,
        on_call: Callable[[Call], Frame | None],
    ) -> None:
        self.agent = agent
        self.up = asyncio.Event()
        self.generation = 0
        self.acknowledges_status: bool | None = None
        self._address, self._broker, self._http, self._pace, self._visibility = address, broker, http, pace, visibility
        self._on_call = on_call
        self._socket: ClientConnection | None = None
        self._waiting: dict[RpcId, Callable[[Answer], None]] = {}
        self._heard_at_s = 0.0
        self._down = asyncio.Event()
        self._down.set()

    def __repr__(self) -> str:
        state = "up" if self.up.is_set() else "down"
        return f"<HubLink {self.agent} {state} generation={self.generation} waiting={len(self._waiting)}>"

    async def run(self) -> None:
        """Stays connected until cancelled; raises HubRefused where the hub will never take this agent."""
        backoff = Backoff(self._pace.reconnect_s, self._pace.longest_reconnect_s)
        while True:
            try:
                async with self._connected() as socket:
                    await self._register(socket)
                    backoff.reset()
                    await self._serve(socket)
            except HubRefused:
                raise
            except (SkillstreamError, ConnectionClosed, InvalidHandshake, InvalidURI, OSError, TimeoutError) as error:
                pause_s = backoff.next_s()
                log.warning("%s is not at the hub: %s; again in %.1f s", self.agent, _brief(error), pause_s)
                await asyncio.sleep(pause_s)

    async def send(self, frame: Frame) -> None:
        """Waits until the agent is registered and sends; raises HubUnavailable where the connection breaks on it."""
        await self.up.wait()
        socket = self._socket
        if socket is None:
            raise HubUnavailable("the connection broke")
        try:
            await socket.send(json_text(frame))
        except ConnectionClosed:
            if self._socket is socket:
                self._set_down()  # before the reader has noticed: who sends again must wait
            raise HubUnavailable("the connection broke") from None

    async def until_after(self, generation: int) -> None:
        """Waits until this registration is over."""
        while self.generation == generation and self.up.is_set():
            await self._down.wait()

    def expect(self, rpc_id: RpcId, on_answer: Callable[[Answer], None]) -> None:
        """Has the answer to a request handed on, on whatever connection it comes, until `forget`."""
        self._waiting[rpc_id] = on_answer

    def forget(self, rpc_id: RpcId) -> None:
        """Waits for this answer no longer."""
        self._waiting.pop(rpc_id, None)

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[ClientConnection]:
        try:
            # no pings: the protocol has heartbeats of its own
            async with connect(
                self._address.url, open_timeout=self._pace.answer_s, close_timeout=1, max_size=MAX_BYTES, ping_interval=None
            ) as socket:
                yield socket
        except InvalidStatus as error:
            if error.response.status_code in REFUSED:
                raise HubRefused(f"the hub does not let this connection in (HTTP {error.response.status_code})") from None
            raise
        finally:
            self._set_down()

    def _set_down(self) -> None:
        self.up.clear()
        self._down.set()
        self._socket = None

    async def _register(self, socket: ClientConnection) -> None:
        async with asyncio.timeout(self._pace.answer_s):
            await self._until(socket, lambda frame: isinstance(frame, Call) and frame.method == "connection.established")
            card = (await self._broker.cards(self.agent)).get(self.agent)
            if card is None:
                raise UnknownAgent(f"agent {self.agent!r} is not known on this broker")
            token = await fetch_token(self._http, self._address)
            rpc_id = f"register-{self.generation + 1}"
            await socket.send(json_text(register_frame(card, token, self._visibility, rpc_id)))
            answer = await self._until(socket, lambda frame: isinstance(frame, Answer) and frame.id == rpc_id)
        assert isinstance(answer, Answer)
        result = answer.result if isinstance(answer.result, dict) else {}
        if result.get("registered") is not True:
            why = str(result.get("error") or (answer.error or {}).get("message") or "no reason given")[:300]
            if any(words in why.lower() for words in _OWNERSHIP):
                raise HubRefused(f"registration: {why}")
            raise HubUnavailable(f"registration: {why}")
        self.generation += 1
        self._socket = socket
        self._down.clear()
        self.up.set()
        log.info("%s is registered at the hub", self.agent)

    async def _until(self, socket: ClientConnection, wanted: Callable[[Call | Answer], bool]) -> Call | Answer:
        """Reads on until the wanted frame comes; others are taken as always."""
        while True:
            frame = read_frame(await socket.recv())
            if not isinstance(frame, Garbage) and wanted(frame):
                return frame
            await self._take(socket, frame)

    async def _serve(self, socket: ClientConnection) -> None:
        self._heard_at_s = asyncio.get_running_loop().time()
        beating = asyncio.create_task(self._beat(socket))
        try:
            async for raw in socket:
                self._heard_at_s = asyncio.get_running_loop().time()
                await self._take(socket, read_frame(raw))
            raise HubUnavailable("the hub closed the connection")
        finally:
            await break_off(beating)

    async def _beat(self, socket: ClientConnection) -> None:
        while True:
            await asyncio.sleep(self._pace.heartbeat_s)
            if asyncio.get_running_loop().time() - self._heard_at_s > self._pace.silence_s:
                log.warning("the hub has been silent for %g s", self._pace.silence_s)
                await socket.close()
                return
            await socket.send(json_text(call_frame("heartbeat", {})))

    async def _take(self, socket: ClientConnection, frame: Call | Answer | Garbage) -> None:
        match frame:
            case Garbage(reply=reply):
                log.warning("the hub sent a frame that cannot be read: %s", reply["error"]["message"])
                await socket.send(json_text(reply))
            case Answer(id=rpc_id):
                if (on_answer := self._waiting.get(rpc_id)) is not None:
                    on_answer(frame)
            case Call(method="heartbeat"):
                await socket.send(json_text(call_frame("heartbeat_ack", {})))
            case Call(method="heartbeat_ack" | "connection.established"):
                pass
            case Call(method="task.execute"):
                if (busy := self._on_call(frame)) is not None:
                    await socket.send(json_text(busy))
            case Call(method=method, id=rpc_id) if rpc_id is not None:
                reply = error_frame(rpc_id, METHOD_NOT_FOUND, f"{method[:100]} is not known here")
                await socket.send(json_text(reply))


def _brief(error: BaseException) -> str:
    return error.message if isinstance(error, SkillstreamError) else f"{type(error).__name__}: {error}"[:200]
