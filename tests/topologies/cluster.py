"""A cluster of three primaries and three replicas on loopback, all from the packaged server."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any, cast

import redis
from redis.cluster import ClusterNode
from redis.crc import key_slot

from tests.support.redis_server import RedisServer, free_port, valkey_binary
from tests.topologies.trio import until

_PRIMARIES = 3
_SLOTS = 16_384
_MIGRATE_MS = 5000
_NODE_TIMEOUT_MS = 2000


class Node:
    """One server of a cluster."""

    def __init__(self) -> None:
        self._bus_port = free_port()
        self.server = RedisServer(
            valkey_binary(),
            *("--cluster-enabled", "yes", "--cluster-node-timeout", str(_NODE_TIMEOUT_MS), "--cluster-port", str(self._bus_port)),
            *("--repl-diskless-sync-delay", "0", "--cluster-replica-validity-factor", "0"),
        )

    @property
    def port(self) -> int:
        """Where clients connect to."""
        return self.server.port

    def ask(self, *command: str | int) -> Any:
        """Runs one command at this node, whatever its keys."""
        with self.server.client() as client:
            return cast(Any, client).execute_command(*command)

    def id(self) -> str:
        """The node's id in the cluster."""
        return str(self.ask("CLUSTER", "MYID"))

    def meet(self, other: Node) -> None:
        """Joins the cluster of another node."""
        self.ask("CLUSTER", "MEET", "127.0.0.1", other.port, other._bus_port)

    def replication(self) -> dict[str, Any]:
        """Whether it is a primary, and whether a replica has what its primary has."""
        with self.server.client() as client:
            return cast(dict[str, Any], cast(Any, client).info("replication"))

    def errors(self) -> set[str]:
        """Kinds of errors that it has answered with: MOVED, TRYAGAIN, …"""
        with self.server.client() as client:
            return {name.removeprefix("errorstat_") for name in cast(Any, client).info("errorstats")}

    def blocked(self) -> int:
        """How many clients wait in a command that blocks."""
        with self.server.client() as client:
            return int(cast(Any, client).info("clients")["blocked_clients"])

    def is_ready(self, nodes: int) -> bool:
        """True once it sees all nodes and all slots, and a replica has what its primary has."""
        info = dict(line.split(":", 1) for line in str(self.ask("CLUSTER", "INFO")).splitlines() if ":" in line)
        replication = self.replication()
        is_in_step = replication.get("master_link_status", "up") == "up"
        return info["cluster_state"] == "ok" and int(info["cluster_known_nodes"]) == nodes and is_in_step


class ValkeyCluster:
    """Responsible for the nodes, and for what an operator does to them."""

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes
        self.url = "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in nodes[:_PRIMARIES])

    def form(self) -> None:
        """Joins the nodes, gives the slots to the first three, and a replica to each."""
        primaries, replicas = self.nodes[:_PRIMARIES], self.nodes[_PRIMARIES:]
        for number, node in enumerate(self.nodes):
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for number, node in enumerate(primaries):
            first, end = number * _SLOTS // _PRIMARIES, (number + 1) * _SLOTS // _PRIMARIES
            node.ask("CLUSTER", "ADDSLOTSRANGE", first, end - 1)
        for node in self.nodes[1:]:
            node.meet(self.nodes[0])
        for replica, primary in zip(replicas, primaries, strict=True):
            until(partial(replica.ask, "CLUSTER", "REPLICATE", primary.id()), "a replica knows its primary")
        self.mend()

    def mend(self) -> None:
        """Starts what was killed, as a replica of whoever took its place, and waits until all is whole."""
        for node in self.nodes:
            node.server.start_again()
        until(lambda: all(node.is_ready(len(self.nodes)) for node in self.nodes), "the cluster is whole")
        until(lambda: [node.replication()["connected_slaves"] for node in self.primaries()] == [1] * _PRIMARIES, "replicas")

    def primaries(self) -> list[Node]:
        """The nodes that have slots now, of those that live."""
        return [node for node in self.nodes if node.server.is_running and node.replication()["role"] == "master"]

    def another(self, owner: Node) -> Node:
        """A primary that is not this one."""
        return next(node for node in self.primaries() if node is not owner)

    def owner(self, key: str) -> Node:
        """The primary of a key, as the first node that answers sees it."""
        slot = key_slot(key.encode())
        for node in self.nodes:
            if node.server.is_running and (port := self._owner_seen_by(node, slot)):
                return next(each for each in self.nodes if each.port == port)
        raise AssertionError(f"nobody has slot {slot}")

    def begin_move(self, key: str, target: Node) -> Node:
        """Opens the way of a key's slot to another node; returns the node that has it."""
        slot, source = key_slot(key.encode()), self.owner(key)
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id())
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id())
        return source

    def move_keys(self, key: str, source: Node, target: Node, *, but: int = 0) -> None:
        """Moves the keys of a key's slot, all but a number of them."""
        slot = key_slot(key.encode())
        while keys := sorted(source.ask("CLUSTER", "GETKEYSINSLOT", slot, 1000))[but:]:
            source.ask("MIGRATE", "127.0.0.1", target.port, "", 0, _MIGRATE_MS, "KEYS", *keys)

    def end_move(self, key: str, source: Node, target: Node) -> None:
        """Says to all that a key's slot, emptied by `move_keys`, is another node's."""
        slot = key_slot(key.encode())
        for node in (target, source, *self.primaries()):
            node.ask("CLUSTER", "SETSLOT", slot, "NODE", target.id())

    def move(self, key: str) -> None:
        """Moves a key's slot to another node, key by key."""
        target = self.another(self.owner(key))
        source = self.begin_move(key, target)
        self.move_keys(key, source, target, but=1)
        self.move_keys(key, source, target)
        self.end_move(key, source, target)

    def move_at_once(self, key: str) -> None:
        """The same, in the way of Valkey 9: its keys are copied, then change hands in one step."""
        slot, source = key_slot(key.encode()), self.owner(key)
        target = self.another(source)
        source.ask("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", target.id())
        until(lambda: all(self._owner_seen_by(node, slot) == target.port for node in self.nodes), "the slot's new owner")

    def _owner_seen_by(self, node: Node, slot: int) -> int:
        seen = (int(primary[1]) for first, last, primary, *_ in node.ask("CLUSTER", "SLOTS") if first <= slot <= last)
        return next(seen, 0)

    def outside(self) -> redis.RedisCluster:
        """A redis-py client of the cluster: the view from outside."""
        nodes = [cast(Any, ClusterNode)("127.0.0.1", node.port) for node in self.nodes]
        return cast(redis.RedisCluster, cast(Any, redis.RedisCluster)(startup_nodes=nodes, decode_responses=True))


@contextlib.contextmanager
def valkey_cluster() -> Iterator[ValkeyCluster]:
    """Starts all six processes and ends them by their ids."""
    with contextlib.ExitStack() as stack:
        nodes = [Node() for _ in range(2 * _PRIMARIES)]
        for node in nodes:
            stack.enter_context(node.server)
        cluster = ValkeyCluster(nodes)
        cluster.form()
        yield cluster
