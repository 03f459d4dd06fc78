"""Following on a cluster: one connection a node, and every stream followed where it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from skillstream_schemas.ids import EventId
from skillstream_schemas.settings import Settings

from .calling import REDIRECTS, Caller, Problem
from .connection import Connection
from .feed import Feed
from .follow import FollowHub
from .pipeline import Pipeline
from .resp import Reply, ReplyError

_REST_S = 0.05
"""How long a feed rests whose stream is on its way to another node."""


class Following(Protocol):
    """What follows streams, on one server or on a cluster."""

    def feed(self, key: str, after: EventId, *, last_only: bool = False) -> Feed:
        """Starts to follow a stream behind `after`; with `last_only` just its newest entry each time."""

    async def close(self) -> None:
        """Closes the connections and ends all feeds; twice is safe."""


def following_of(caller: Caller, settings: Settings) -> Following:
    """What follows the streams of the broker to which `caller` sends."""
    return FollowHub(settings, caller) if isinstance(caller, Pipeline) else ClusterFollowing(caller, settings)


class ClusterFollowing:
    """Responsible for one hub a node, and for each feed being at the hub of the node that has its stream."""

    def __init__(self, caller: Caller, settings: Settings) -> None:
        self._caller, self._settings = caller, settings
        self._hubs: dict[Pipeline, NodeHub] = {}

    def __repr__(self) -> str:
        return f"<ClusterFollowing {list(self._hubs.values())}>"

    def feed(self, key: str, after: EventId, *, last_only: bool = False) -> Feed:
        """Starts to follow a stream behind `after`; with `last_only` just its newest entry each time."""
        return self.hub_of(key).feed(key, after, last_only=last_only)

    async def close(self) -> None:
        """Closes the connections and ends all feeds; twice is safe."""
        for hub in self._hubs.values():
            await hub.close()

    async def heed(self, problem: Problem) -> None:
        """Finds out where streams are now."""
        await self._caller.heed(problem)

    def hub_of(self, key: str) -> NodeHub:
        """The hub of the node that has a stream, as far as is known."""
        link = self._caller.link_of(key)
        hub = self._hubs.get(link)
        if hub is None:
            hub = self._hubs[link] = NodeHub(self._settings, self._caller, link, self)
        return hub


class NodeHub(FollowHub):
    """Responsible for the streams that one node of a cluster has; those that it has no more go to other hubs."""

    def __init__(self, settings: Settings, caller: Caller, link: Pipeline, whole: ClusterFollowing) -> None:
        super().__init__(settings, caller)
        self._link, self._whole = link, whole

    async def _connect(self) -> Connection:
        return await self._link.connect(protocol=3, on_push=self._pushed)

    async def _hand_out(self, feeds: Sequence[Feed], replies: Sequence[Reply]) -> None:
        strayed = [(feed, reply) for feed, reply in zip(feeds, replies, strict=True) if _is_redirect(reply)]
        if not strayed:
            await super()._hand_out(feeds, replies)
            return
        here = [(feed, reply) for feed, reply in zip(feeds, replies, strict=True) if not _is_redirect(reply)]
        await super()._hand_out([feed for feed, _ in here], [reply for _, reply in here])
        await self._whole.heed(strayed[0][1])
        loop = asyncio.get_running_loop()
        self._rehome((feed for feed, _ in strayed), lambda feed: loop.call_later(_REST_S, self.want, feed))

    async def _is_needed(self, problem: Problem) -> bool:
        await self._whole.heed(problem)
        self._rehome([feed for feeds in self._feeds.values() for feed in feeds], lambda feed: None)
        return bool(self._feeds)

    def _rehome(self, feeds: Iterable[Feed], stay: Callable[[Feed], object]) -> None:
        for feed in feeds:
            home = self._whole.hub_of(feed.key)
            if home is self:
                stay(feed)
            elif feed in self._feeds.get(feed.key.encode(), ()):  # else its reader has closed it meanwhile
                feed.move(home)


def _is_redirect(reply: Reply) -> bool:
    return isinstance(reply, ReplyError) and reply.kind in REDIRECTS
