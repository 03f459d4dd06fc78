"""Commands find the key by which they are sent, and stay together where they belong together."""

from __future__ import annotations

import pytest

from skillstream.resp import Argument, blob, pack, pack_around
from skillstream.scripts import CANCEL
from skillstream.statements import routed


@pytest.mark.parametrize(
    ("command", "key"),
    [
        (("XRANGE", "a", "-", "+"), "a"),
        (CANCEL.evalsha(["a", "b"], ["x"]), "a"),
        (("XGROUP", "CREATE", "a", "router", "0", "MKSTREAM"), "a"),
        (("XREADGROUP", "GROUP", "router", "me", "COUNT", 5, "STREAMS", "a", ">"), "a"),
        (("TIME",), None),
        (("PUBLISH", "channel", "text"), None),
    ],
)
def test_a_command_is_sent_by_its_key(command: tuple[Argument, ...], key: str | None) -> None:
    (part,) = routed([command])
    assert part.key == key
    assert (part.packed(), part.count) == (pack(command), 1)


def test_a_packed_command_is_sent_by_its_key() -> None:
    head, tail = pack_around(("XRANGE",), ("-", "+", "COUNT", 1))
    command = head + blob("a{1}:events") + tail
    (part,) = routed([command, ("XREVRANGE", "a{1}:events", "+", "-")])
    assert part.key == "a{1}:events"
    assert (part.packed(), part.count) == (command + pack(("XREVRANGE", "a{1}:events", "+", "-")), 2)


def test_neighbours_of_one_key_and_transactions_stay_together() -> None:
    commands = [
        ("GET", "a"), ("GET", "a"), ("GET", "b"),
        ("MULTI",), ("XACK", "c", "router", "1-0"), ("XDEL", "c", "1-0"), ("EXEC",), ("GET", "c"), ("GET", "a"),
    ]  # fmt: skip
    parts = routed(commands)
    assert [(part.key, part.count) for part in parts] == [("a", 2), ("b", 1), ("c", 5), ("a", 1)]
    assert b"".join(part.packed() for part in parts) == b"".join(map(pack, commands))


def test_what_is_asked_for_elsewhere_has_an_asking_before_each_command_and_transaction() -> None:
    (part,) = routed([("MULTI",), ("XDEL", "c", "1-0"), ("EXEC",), ("GET", "c")])
    part.asked_at = ("host", 1)
    asking = pack(("ASKING",))
    transaction = b"".join(map(pack, [("MULTI",), ("XDEL", "c", "1-0"), ("EXEC",)]))
    assert part.packed() == asking + transaction + asking + pack(("GET", "c"))
    assert part.count == 6
    assert part.own([b"OK", b"OK", b"QUEUED", [1], b"OK", b"text"]) == [b"OK", b"QUEUED", [1], b"text"]
