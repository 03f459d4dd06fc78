"""A cluster, `redis+cluster://[user:password@]host:port[,host:port…]`: one pipeline to each node, keys sent to where they are.

The nodes named are asked for the others. `rediss+cluster://` secures the connections to all of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot

from skillstream_schemas.errors import BrokerAccessDenied, BrokerRefused, BrokerUnavailable, InvalidSettings
from skillstream_schemas.settings import Settings, without_secret

from .breaking_off import break_off
from .calling import REDIRECTS, RETRY_KINDS, Caller, Patience, Problem
from .connection import Connection, OnPush, connect
from .many_hosts import ManyHosts
from .pipeline import Pipeline
from .resp import Argument, Reply, ReplyError
from .scripts import Script
from .statements import Routed, routed

log = logging.getLogger(__name__)

_SCHEMES = ("redis+cluster://", "rediss+cluster://")
_PORT = 6379
_FRESH_S = 0.05
"""How long nobody asks for the map of slots again, however many have reason to."""
_NEWS = frozenset({"MOVED", "CLUSTERDOWN", "LOADING", "READONLY", "MASTERDOWN"})
"""Answers after which another node may have the key by now."""
_Address = tuple[str, int]


def caller_of(settings: Settings, scripts: Sequence[Script]) -> Caller:
    """What sends commands to the broker of these settings; raises InvalidSettings for a cluster's URL that cannot be read."""
    url = settings.redis_url
    scheme = next((scheme for scheme in _SCHEMES if url.startswith(scheme)), None)
    if scheme is None:
        return Pipeline(settings, scripts)
    try:
        hosts = ManyHosts.parse(url, scheme, _PORT)
        if hosts.path not in ("", "0"):
            raise ValueError
    except ValueError:
        raise InvalidSettings(f"redis_url {without_secret(url)}: is not of the form {scheme}host:port,host:port") from None
    return Cluster(settings, scripts, hosts)


class Cluster(Caller):
    """Responsible for which node has which key, and for a pipeline to each node that has some.

    What a node sends elsewhere is sent there; where a node is away, the others are asked who has its keys now.
    """

    passing = RETRY_KINDS | REDIRECTS

    def __init__(self, settings: Settings, scripts: Sequence[Script], hosts: ManyHosts) -> None:
        super().__init__(settings)
        self._scripts = tuple(scripts)
        self._hosts = hosts
        self._links: dict[_Address, Pipeline] = {}
        self._slots: list[_Address] = [hosts.hosts[0]] * REDIS_CLUSTER_HASH_SLOTS
        self._nodes = set(hosts.hosts)
        self._learning: asyncio.Task[None] | None = None
        self._learned_at_s = float("-inf")

    def __repr__(self) -> str:
        return f"<Cluster nodes={[f'{host}:{port}' for host, port in sorted(self._nodes)]}>"

    async def open(self) -> None:
        """Asks for the map of slots; raises BrokerUnavailable at once where no node answers, BrokerRefused by no cluster."""
        await self._learn()

    async def close(self) -> None:
        """Breaks off what is under way and closes the connections; twice is safe."""
        self._closed = True
        if self._learning is not None:
            await break_off(self._learning)
        for link in self._links.values():
            await link.close()

    @property
    def connections_made(self) -> int:
        """Greater than before where an answer may have been lost."""
        return sum(link.generation for link in self._links.values())

    def link_of(self, key: str) -> Pipeline:
        """The pipeline to the node that has a key, as far as is known."""
        return self._link(self._slots[key_slot(key.encode())])

    async def connect(self, key: str | None, *, protocol: int = 2, on_push: OnPush | None = None) -> Connection:
        """A connection of its own to the node that has a key, or to any that answers; raises as `connection.connect`."""
        problem: BrokerUnavailable | None = None
        links = [self.link_of(key)] if key is not None else [self._link(address) for address in self._known()]
        for link in links:
            try:
                return await link.connect(protocol=protocol, on_push=on_push)
            except BrokerUnavailable as error:
                problem = error
        assert problem is not None
        await self.heed(problem)
        raise problem

    async def heed(self, problem: Problem) -> None:
        """Learns the map of slots again where it may be out of date, and what a node says of a key that it has not got."""
        if self._closed or (isinstance(problem, ReplyError) and problem.kind not in _NEWS):
            return
        try:
            if asyncio.get_running_loop().time() - self._learned_at_s >= _FRESH_S:
                await self._learn()
        except (BrokerUnavailable, BrokerRefused) as error:
            log.debug("%s", error)
        if isinstance(problem, ReplyError) and problem.kind == "MOVED":
            # the node that was asked for the map may not know yet
            slot, address = self._redirection(problem)
            if self._slots[slot] != address:
                self._slots[slot] = address
                self._has_gained(address)

    async def load(self, script: Script) -> None:
        """Gives a script to all nodes; raises as `call` does."""
        await asyncio.gather(*(link.load(script) for link in map(self._link, self._nodes)))

    async def _persist(self, commands: Sequence[Sequence[Argument]], step: str) -> Reply:
        parts = routed(commands)
        patience = Patience(self._settings.patience_s, step)
        while waiting := [part for part in parts if part.replies is None]:
            problem = await self._ask(waiting)
            if problem is None:
                continue
            await self.heed(problem)
            if self._closed or self.is_hopeless(problem):
                patience.end(problem)
            await patience.pause(problem)
        replies = [reply for part in parts for reply in part.replies or ()]
        return replies if len(commands) > 1 else replies[0]

    async def _ask(self, parts: Sequence[Routed]) -> Problem | None:
        """Asks each part's node once; returns why one has to be asked again, unless at the node that it was told."""
        by_link: dict[Pipeline, list[Routed]] = {}
        for part in parts:
            by_link.setdefault(self._link_for(part), []).append(part)
        asked = [
            link.ask(b"".join(part.packed() for part in group), sum(part.count for part in group))
            for link, group in by_link.items()
        ]
        problem: Problem | None = None
        for group, answer in zip(by_link.values(), await asyncio.gather(*asked, return_exceptions=True), strict=True):
            if isinstance(answer, BrokerUnavailable):
                problem = answer
                for part in group:
                    part.asked_at = None
                continue
            problem = self._hand_out(group, answer) or problem
        return problem

    def _hand_out(self, group: Sequence[Routed], answer: Reply) -> Problem | None:
        replies = answer if sum(part.count for part in group) > 1 else [answer]
        problem: Problem | None = None
        place = 0
        for part in group:
            own = part.own(replies[place : place + part.count])
            place += part.count
            part.asked_at = None
            refusal = self.refusal(own if len(own) > 1 else own[0], len(own))
            if refusal is None:
                part.replies = own
            elif refusal.kind == "ASK":
                part.asked_at = self._redirection(refusal)[1]
            else:
                problem = refusal
        return problem

    def _link_for(self, part: Routed) -> Pipeline:
        if part.asked_at is not None:
            return self._link(part.asked_at)
        return self.link_of(part.key) if part.key is not None else self._link(self._known()[0])

    def _link(self, address: _Address) -> Pipeline:
        link = self._links.get(address)
        if link is None:
            server = self._hosts.server_url(*address)
            link = self._links[address] = Pipeline(self._settings, self._scripts, server=server)
        return link

    def _known(self) -> list[_Address]:
        """Nodes, those first that a connection leads to."""
        nodes = dict.fromkeys((*self._nodes, *self._hosts.hosts))
        return sorted(nodes, key=lambda address: address not in self._links or not self._links[address].is_open)

    async def _learn(self) -> None:
        """Asks for the map of slots, once for all who want it at the same time; raises BrokerUnavailable."""
        if self._learning is None or self._learning.done():
            self._learning = asyncio.get_running_loop().create_task(self._ask_for_slots(), name="skillstream-slots")
        await asyncio.shield(self._learning)

    async def _ask_for_slots(self) -> None:
        problem: Exception | None = None
        for host, port in self._known():
            try:
                reply = await self._slots_of(host, port)
            except (BrokerUnavailable, ReplyError) as error:
                problem = error
                continue
            if reply:
                self._take(reply, host)
                return
        if isinstance(problem, ReplyError) and problem.kind not in RETRY_KINDS:
            raise BrokerRefused(f"ask for the slots of the cluster: {problem}")
        kind = BrokerAccessDenied if isinstance(problem, BrokerAccessDenied) else BrokerUnavailable
        raise kind(f"no node of the cluster says who has which keys: {problem or 'none has any'}")

    def _take(self, reply: Reply, host: str) -> None:
        slots = [*self._slots]
        nodes: set[_Address] = set()
        for first, last, (name, port, *_), *_ in reply:
            address = (name.decode() if name else host, int(port))  # without a name it is that of the node that was asked
            nodes.add(address)
            slots[first : last + 1] = [address] * (last - first + 1)
        for address in {now for before, now in zip(self._slots, slots, strict=True) if before != now}:
            self._has_gained(address)
        self._slots, self._nodes = slots, nodes
        self._learned_at_s = asyncio.get_running_loop().time()

    def _has_gained(self, address: _Address) -> None:
        # a node that was a primary before comes back with what a replica had: an attempt that was silent meanwhile has to look
        if (link := self._links.get(address)) is not None:
            link.generation += 1

    async def _slots_of(self, host: str, port: int) -> Reply:
        connection = await connect(self._settings, server=self._hosts.server_url(host, port))
        try:
            return await connection.call("CLUSTER", "SLOTS", timeout_s=self._settings.answer_timeout_s)
        finally:
            connection.close()

    def _redirection(self, answer: ReplyError) -> tuple[int, _Address]:
        """Slot and address in `MOVED 3999 127.0.0.1:6381` or `ASK …`; without a host it is the slot's present one."""
        _, slot, place = str(answer).split(" ")
        host, _, port = place.rpartition(":")
        return int(slot), (host or self._slots[int(slot)][0], int(port))
