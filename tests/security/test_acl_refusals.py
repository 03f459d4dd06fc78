"""What a role does not need is refused, on servers that enforce deploy/acl."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import redis

from skillstream import Client
from skillstream.broker import Broker
from skillstream_schemas import keys as arq_keys
from skillstream_schemas.errors import BrokerAccessDenied, BrokerRefused
from skillstream_schemas.keys import Keyspace
from skillstream_schemas.settings import Settings
from tests.support.redis_server import RedisServer

from .conftest import SettingsOf
from .roles import ROLES, password_of, rules_of, url_of

KEYS = Keyspace(shard_count=4)
EVENTS, CANCEL, INBOX = KEYS.events("t"), KEYS.cancel("t"), KEYS.inbox_of("t")
QUEUE, MEMBER = arq_keys.queue("a"), arq_keys.job_id("a", "t")
JOB, LEASE, RESULT, WAKE = arq_keys.job(MEMBER), arq_keys.in_progress(MEMBER), arq_keys.result(MEMBER), KEYS.wake("a")
SHARDS, AGENTS, CONTEXT = KEYS.shards, KEYS.agents, KEYS.context_messages("c")
ADD = ("XADD", EVENTS, "9-1", "type", "chunk", "text", "forged")
NOBODY = [
    ("FLUSHALL",), ("KEYS", "*"), ("SCAN", "0"), ("CONFIG", "GET", "*"), ("MONITOR",), ("ACL", "LIST"), ("CLIENT", "LIST"),
    ("SHUTDOWN",), ("DEL", EVENTS), ("XDEL", EVENTS, "0-1"), ("XTRIM", EVENTS, "MAXLEN", "0"),
    ("RENAME", EVENTS, "other"), ("GET", "other"), ("SET", "other", "1"), ("XADD", "other", "*", "a", "b"), ("DEL", INBOX),
    ("GET", "arq:abort"), ("SUBSCRIBE", "other"), ("PUBLISH", "other", "x"), ("EVAL", "return 1", "0"), ("SCRIPT", "FLUSH"),
    ("FUNCTION", "LIST"), ("DEL", SHARDS), ("DEL", AGENTS), ("DEL", QUEUE), ("PERSIST", EVENTS),
    ("EVALSHA", "0" * 40, "1", "other"),
]  # fmt: skip
REFUSED = {
    "follower": [
        ADD, ("XADD", INBOX, "*", "task", "t", "kind", "final"), ("SET", CANCEL, "x"), ("GET", CANCEL), ("SET", SHARDS, "1"),
        ("HGETALL", AGENTS), ("ZADD", QUEUE, "1", MEMBER), ("ZRANGE", QUEUE, "0", "-1"), ("GET", JOB), ("PEXPIRE", EVENTS, "1"),
        ("PUBLISH", KEYS.control, "t"), ("LRANGE", CONTEXT, "0", "-1"), ("EVALSHA", "0" * 40, "1", EVENTS),
        ("XREAD", "STREAMS", INBOX, "0"), ("BLMPOP", "0.1", "1", WAKE, "LEFT"),
    ],
    "submitter": [
        ("SET", LEASE, "w1:1"), ("GET", LEASE), ("GET", JOB), ("HSET", AGENTS, "a", "{}"), ("SET", SHARDS, "1"), ("GET", CANCEL),
        ("LRANGE", CONTEXT, "0", "-1"), ("XREADGROUP", "GROUP", "router", "x", "STREAMS", INBOX, ">"),
        ("XACK", INBOX, "router", "1-1"), ("XDEL", INBOX, "1-1"), ("XGROUP", "DESTROY", INBOX, "router"),
        ("LPOP", WAKE), ("SUBSCRIBE", KEYS.control),
        ("ZRANGEBYSCORE", QUEUE, "-inf", "+inf"),
    ],
    "worker": [
        ("SET", CANCEL, "x"), ("PUBLISH", KEYS.control, "t"), ("RPUSH", CONTEXT, "{}"), ("DEL", CONTEXT),
        ("XACK", INBOX, "router", "1-1"), ("XREADGROUP", "GROUP", "router", "x", "STREAMS", INBOX, ">"),
        ("XDEL", INBOX, "1-1"), ("XREVRANGE", INBOX, "+", "-"),
        ("HDEL", AGENTS, "a"), ("ZCARD", QUEUE), ("GET", RESULT),
    ],
    "connector": [
        ("SET", CANCEL, "x"), ("PUBLISH", KEYS.control, "t"), ("SET", LEASE, "w1:1"), ("GET", JOB), ("HSET", AGENTS, "a", "{}"),
        ("LRANGE", CONTEXT, "0", "-1"), ("ZREM", QUEUE, MEMBER), ("XREADGROUP", "GROUP", "router", "x", "STREAMS", INBOX, ">"),
        ("XDEL", INBOX, "1-1"), ("LPOP", WAKE), ("SET", SHARDS, "1"), ("DEL", KEYS.connect_open("l")),
    ],
    "router": [
        ("HSET", AGENTS, "a", "{}"), ("SET", LEASE, "w1:1"), ("GET", LEASE), ("SET", CANCEL, "x"), ("PUBLISH", KEYS.control, "t"),
        ("SUBSCRIBE", KEYS.control), ("LPOP", WAKE), ("BLMPOP", "0.1", "1", WAKE, "LEFT"), ("XGROUP", "DESTROY", INBOX, "router"),
        ("CLIENT", "TRACKING", "ON"), ("GET", RESULT),
    ],
}  # fmt: skip


@pytest.mark.parametrize("role", ROLES)
def test_a_role_is_refused_what_it_does_not_need(role: str, acl_server: RedisServer, admin: Any) -> None:
    admin.xadd(EVENTS, {"type": "status"}, id="0-1")
    client: Any = redis.Redis.from_url(url_of(acl_server, role))
    try:
        for command in (*NOBODY, *REFUSED[role]):
            with pytest.raises(redis.exceptions.NoPermissionError):
                client.execute_command(*command)
    finally:
        client.close()
    assert admin.xlen(EVENTS) == 1
    admin.flushall()


def test_a_script_has_no_rights_that_its_caller_lacks(acl_server: RedisServer, admin: Any) -> None:
    admin.xadd(EVENTS, {"type": "status"}, id="0-1")
    client: Any = redis.Redis.from_url(url_of(acl_server, "submitter"))
    sha = client.script_load("return redis.call('DEL', KEYS[1])")
    try:
        with pytest.raises(redis.exceptions.ResponseError, match=r"(?i)permission|access"):
            client.evalsha(sha, 1, EVENTS)
    finally:
        client.close()
    assert admin.xlen(EVENTS) == 1
    admin.flushall()


async def test_a_follower_that_tries_more_gets_a_coded_error(settings_of: SettingsOf, admin: Any) -> None:
    admin.set(SHARDS, "4")
    admin.hset(AGENTS, "a", '{"name":"a","queue":"q","skills":[{"name":"s"}]}')
    async with Client(settings=settings_of("follower")) as client:
        for attempt in (client.submit("a", "s", "x"), client.task("t").cancel(), client.agents()):
            with pytest.raises(BrokerRefused, match=r"(?i)permission|access"):
                await attempt
    admin.flushall()


async def test_a_follower_may_not_be_the_first_on_a_broker(settings_of: SettingsOf, admin: Any) -> None:
    with pytest.raises(BrokerRefused, match="check shards"):
        await Broker(settings_of("follower")).open()
    assert admin.keys() == []


@pytest.mark.parametrize("user", ["worker:wrong", "nobody:x", "worker"])
async def test_a_wrong_password_is_a_coded_error_without_it(acl_server: RedisServer, user: str) -> None:
    settings = Settings(redis_url=f"redis://{user}@127.0.0.1:{acl_server.port}/0")
    with pytest.raises(BrokerAccessDenied) as raised:
        await Broker(settings).open()
    assert "wrong" not in str(raised.value).replace("WRONGPASS", "")


def test_the_files_hold_no_password_and_are_refused_as_they_are(admin: Any) -> None:
    for role in ROLES:
        assert password_of(role) not in rules_of(role)
        rules = (Path(__file__).parents[2] / "deploy" / "acl" / f"{role}.acl").read_text().split()
        with pytest.raises(redis.exceptions.ResponseError):
            admin.execute_command("ACL", "SETUSER", f"trial-{role}", rules[3])
