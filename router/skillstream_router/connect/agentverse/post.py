"""Messages on their way to other agents: signed, in order for those who wait for each, tried again for a while."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from uuid import UUID

import httpx
from uagents_core.contrib.protocols.chat import ChatAcknowledgement, ChatMessage

from skillstream.clock import Clock
from skillstream_router.connect.backoff import Backoff
from skillstream_schemas.connect_errors import PeerRefused, PeerUnavailable

from .envelopes import seal
from .identity import ChatAgent
from .peers import Peers

log = logging.getLogger(__name__)
_LATER = (408, 425, 429)


@dataclass(frozen=True, slots=True)
class ChatPace:
    """How long the bridge waits, in seconds: for one request, in all for a peer, for the acknowledgement to be sent first, and
    until text is sent that has not come to the end of a sentence."""

    request_s: float = 10.0
    patience_s: float = 300.0
    first_pause_s: float = 0.2
    longest_pause_s: float = 15.0
    acknowledgement_s: float = 5.0
    flush_s: float = 0.5


class Post:
    """Responsible for one message at a time: signed anew at each try, since an envelope expires."""

    def __init__(self, http: httpx.AsyncClient, peers: Peers, clock: Clock, pace: ChatPace) -> None:
        self._http, self._peers, self._clock, self._pace = http, peers, clock, pace

    async def send(self, agent: ChatAgent, target: str, session: UUID, content: ChatMessage | ChatAcknowledgement) -> None:
        """Returns once the peer has it; raises PeerUnavailable after `patience_s`, PeerRefused where it will not have it."""
        backoff = Backoff(self._pace.first_pause_s, self._pace.longest_pause_s)
        give_up_s = self._clock.elapsed_s() + self._pace.patience_s
        while True:
            try:
                await self._try(agent, target, session, content)
            except PeerUnavailable as error:
                self._peers.forget(target)
                pause_s = backoff.next_s()
                if self._clock.elapsed_s() + pause_s > give_up_s:
                    raise
                log.info("%s; again in %.1f s", error.message, pause_s)
                await asyncio.sleep(pause_s)
            else:
                return

    async def _try(self, agent: ChatAgent, target: str, session: UUID, content: ChatMessage | ChatAcknowledgement) -> None:
        url = await self._peers.endpoint(target)
        body = seal(agent, target, session, content, self._clock.now_ms() / 1000)
        headers = {"content-type": "application/json"}
        try:
            answer = await self._http.post(url, content=body, headers=headers, timeout=self._pace.request_s)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise PeerUnavailable(f"{target} cannot be reached: {type(error).__name__}") from None
        if answer.is_success:
            return
        if answer.is_client_error and answer.status_code not in _LATER:
            raise PeerRefused(f"{target} answers HTTP {answer.status_code}: {answer.text[:200]}")
        raise PeerUnavailable(f"{target} answers HTTP {answer.status_code}")
