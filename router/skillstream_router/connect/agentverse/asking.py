"""How skills ask chat agents: `POST /ask`, answered line by line with what the agent says."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
from collections.abc import AsyncIterator, Mapping
from uuid import UUID

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from uagents_core.contrib.protocols.chat import ChatMessage, TextContent
from uagents_core.models import ErrorMessage

from skillstream.breaking_off import break_off
from skillstream_router.connect.broker import ConnectBroker
from skillstream_schemas.connect_errors import PeerRefused, PeerUnavailable
from skillstream_schemas.errors import InvalidRequest, SkillstreamError

from .envelopes import Opened
from .identity import ChatAgent, digest
from .post import Post
from .question import AskRequest, Question

log = logging.getLogger(__name__)
_KEPT_S = 60.0
_ALIVE_S = 10.0
_MOST_BYTES = 8 * 1024 * 1024
_ASKED = "asked"
Conversation = tuple[str, str, UUID]


class Asking:
    """Responsible for questions to chat agents; only who has the key may ask, and without a key nobody.

    A session in which we asked is remembered on the broker: what comes in it later is never taken for a question to us, or two
    bridges would answer one another for ever.
    """

    def __init__(self, agents: Mapping[str, ChatAgent], broker: ConnectBroker, post: Post, key: str) -> None:
        self.routes = (Route("/ask", self._ask, methods=["POST"]),) if key else ()
        self._agents = {agent.name: agent for agent in agents.values()}
        self._broker, self._post, self._key = broker, post, key.encode()
        self._questions: dict[UUID, Question] = {}
        self._current: dict[Conversation, Question] = {}
        self._turns: dict[Conversation, asyncio.Lock] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<Asking questions={len(self._questions)}>"

    async def takes(self, opened: Opened) -> bool:
        """True for what comes in a session in which we asked; it goes to its question, if that still waits."""
        question = self._current.get((opened.agent.name, opened.sender, opened.session))
        match opened.content:
            case ChatMessage() as message:
                if question is not None:
                    question.take(message)
                    return True
                return await self._broker.last_turn(opened.agent.link, _mark(opened.sender, opened.session)) is not None
            case ErrorMessage(error=text) if question is not None:
                question.end({"code": PeerRefused.code, "message": text[:1000]})
        return False

    async def close(self) -> None:
        """Breaks off all questions."""
        await break_off(*self._tasks)

    async def _ask(self, request: Request) -> Response:
        given = request.headers.get("authorization", "").removeprefix("Bearer ").encode()
        if not hmac.compare_digest(given, self._key):
            return JSONResponse({"error": {"code": "unauthorized", "message": "no valid key"}}, status_code=401)
        if int(request.headers.get("content-length", _MOST_BYTES)) >= _MOST_BYTES:
            return _refusal(413, InvalidRequest(f"the body has more than {_MOST_BYTES} bytes, or does not say its length"))
        try:
            asked = AskRequest.read(await request.body())
            if asked.speaker not in self._agents:
                raise InvalidRequest(f"the bridge has no agent {asked.speaker!r}; it has: {', '.join(self._agents)}")
        except InvalidRequest as error:
            return _refusal(400, error)
        question = self._questions.get(asked.msg_id)
        if question is None or question.failed:
            question = self._questions[asked.msg_id] = Question(asked)
            task = asyncio.create_task(self._hold(self._agents[asked.speaker], question))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return StreamingResponse(_written(question), media_type="application/x-ndjson")

    async def _hold(self, agent: ChatAgent, question: Question) -> None:
        """Asks when the conversation's turn has come, and keeps the answer a while for who asks again."""
        asked = question.request
        conversation = agent.name, asked.to, asked.session
        turn = self._turns.setdefault(conversation, asyncio.Lock())
        async with turn:
            self._current[conversation] = question
            try:
                async with asyncio.timeout(asked.timeout_s):
                    await self._broker.set_last_turn(agent.link, _mark(asked.to, asked.session), _ASKED)
                    await self._post.send(
                        agent, asked.to, asked.session, ChatMessage([TextContent(text=asked.text)], msg_id=asked.msg_id)
                    )
                    await question.until_quiet()
                question.end()
            except TimeoutError:
                question.end({"code": PeerUnavailable.code, "message": f"no end of the answer within {asked.timeout_s:g} s"})
            except SkillstreamError as error:
                question.end({"code": error.code, "message": error.message})
            finally:
                question.end({"code": PeerUnavailable.code, "message": "the bridge stopped"})
                del self._current[conversation]
        await asyncio.sleep(_KEPT_S)
        if self._questions.get(asked.msg_id) is question:
            del self._questions[asked.msg_id]
        if not turn.locked():
            self._turns.pop(conversation, None)


async def _written(question: Question) -> AsyncIterator[str]:
    """Lines as JSON; an empty one now and then says that the bridge is alive."""
    lines = aiter(question.lines())
    coming = asyncio.ensure_future(anext(lines, None))
    try:
        while True:
            await asyncio.wait((coming,), timeout=_ALIVE_S)
            if not coming.done():
                yield "\n"
                continue
            line = coming.result()
            if line is None:
                return
            yield json.dumps(line, ensure_ascii=False) + "\n"
            coming = asyncio.ensure_future(anext(lines, None))
    finally:
        coming.cancel()


def _mark(sender: str, session: UUID) -> str:
    return f"asked-{digest(sender, session)}"


def _refusal(status: int, error: SkillstreamError) -> Response:
    return JSONResponse({"error": {"code": error.code, "message": error.message}}, status_code=status)
