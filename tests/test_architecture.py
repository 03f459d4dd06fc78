"""The layout holds: direction of imports, who may touch Redis, headers of scripts, sizes of files and functions."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = {
    "schemas": ROOT / "schemas" / "skillstream_schemas",
    "command": ROOT / "client" / "skillstream_command",
    "client": ROOT / "client" / "skillstream",
    "worker": ROOT / "worker" / "skillstream_worker",
    "router": ROOT / "router" / "skillstream_router",
}
FORBIDDEN = {
    "schemas": {"skillstream", "skillstream_worker", "skillstream_router", "redis", "arq", "hiredis", "socket", "asyncio"},
    "command": {"skillstream_schemas", "skillstream_worker", "skillstream_router", "redis", "pydantic", "typer", "asyncio"},
    "client": {"skillstream_worker", "skillstream_router", "arq"},
    "worker": {"skillstream_router"},
    "router": {"skillstream_worker", "arq"},
}
"""What no file of a package imports, not even inside a function."""

MAX_FILE_LINES = 300
MAX_FUNCTION_LINES = 50
SIZE_EXCEPTIONS: set[str] = set()
"""Files and `file:function`s that may be larger. It is empty, and means to stay so."""

COMMAND_FILES = {"broker.py", "cluster.py", "pipeline.py", "connection.py", "feed.py", "follow.py", "scripts.py"}
"""Files that may name Redis commands, in every package."""
OWN_CONNECTION_FILES = {
    "worker/skillstream_worker/outbox.py",  # the emitter: XADD in units of the pipeline
    "router/skillstream_router/bells.py",  # CLIENT TRACKING on a connection of its own to each node
    "worker/skillstream_worker/listener.py",  # SUBSCRIBE on a connection of its own
}
COMMANDS = frozenset(
    re.findall(
        r"\w+",
        """
        APPEND AUTH BLMOVE BLMPOP BLPOP BRPOP BZMPOP BZPOPMAX BZPOPMIN CLIENT CLUSTER COMMAND CONFIG COPY DECR DECRBY
        DEL DISCARD DUMP ECHO EVAL EVALSHA EVAL_RO EVALSHA_RO EXEC EXISTS EXPIRE EXPIREAT EXPIRETIME FCALL FLUSHALL
        FLUSHDB FUNCTION GET GETDEL GETEX GETRANGE GETSET HDEL HELLO HEXISTS HGET HGETALL HINCRBY HKEYS HLEN HMGET HMSET
        HSCAN HSET HSETNX HVALS INCR INCRBY INFO KEYS LINDEX LINSERT LLEN LMOVE LMPOP LPOP LPUSH LRANGE LREM LSET LTRIM
        MGET MIGRATE MONITOR MSET MULTI OBJECT PERSIST PEXPIRE PEXPIREAT PEXPIRETIME PING PSETEX PSUBSCRIBE PTTL PUBLISH
        PUNSUBSCRIBE RENAME RENAMENX RESET RESTORE RPOP RPUSH SADD SCAN SCARD SCRIPT SELECT SET SETEX SETNX SISMEMBER
        SMEMBERS SORT SPOP SPUBLISH SREM SSUBSCRIBE STRLEN SUBSCRIBE TIME TTL TYPE UNLINK UNSUBSCRIBE UNWATCH WAIT
        WAITAOF WATCH XACK XADD XAUTOCLAIM XCLAIM XDEL XGROUP XINFO XLEN XPENDING XRANGE XREAD XREADGROUP XREVRANGE
        XTRIM ZADD ZCARD ZCOUNT ZINCRBY ZMSCORE ZPOPMAX ZPOPMIN ZRANGE ZRANGEBYSCORE ZRANGESTORE ZRANK ZREM
        ZREMRANGEBYSCORE ZREVRANGE ZSCAN ZSCORE
        """,
    )
)
HTTP_CALLS = {"request", "stream", "api_route", "route"}
"""Calls whose first argument may be `GET` without being a command."""


@dataclass(frozen=True)
class Source:
    """A source file: its package, its path from the root, its lines and its tree."""

    package: str
    path: Path
    text: str

    @property
    def name(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    @property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, filename=self.name)


SOURCES = [
    Source(package, path, path.read_text()) for package, folder in PACKAGES.items() for path in sorted(folder.rglob("*.py"))
]
SCRIPTS = sorted(path for folder in PACKAGES.values() for path in folder.rglob("*.lua"))


def imported(tree: ast.AST) -> Iterator[str]:
    """Whole names of the modules that a file imports absolutely, wherever the statement stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("import_module", "importlib.import_module", "__import__"):
            yield from (a.value for a in node.args[:1] if isinstance(a, ast.Constant) and isinstance(a.value, str))


def commands(tree: ast.AST) -> Iterator[str]:
    """Names of Redis commands that begin a call's arguments, or a tuple or list of several."""
    for node in ast.walk(tree):
        first: ast.expr | None = None
        if isinstance(node, ast.Call) and node.args and ast.unparse(node.func).rpartition(".")[2] not in HTTP_CALLS:
            first = node.args[0]
        elif isinstance(node, ast.Tuple | ast.List) and len(node.elts) > 1:
            first = node.elts[0]
        if isinstance(first, ast.Constant) and isinstance(first.value, str) and first.value in COMMANDS:
            yield f"{first.value} in line {first.lineno}"


def importers(module: str) -> set[str]:
    """Files that import a module or one inside it."""
    return {source.name for source in SOURCES for name in imported(source.tree) if name.partition(".")[0] == module}


def test_there_is_something_to_check() -> None:
    assert {source.package for source in SOURCES} >= {"schemas", "client", "worker"}
    assert len(SOURCES) > 20
    assert len(SCRIPTS) >= 11


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_go_one_way(package: str) -> None:
    wrong = [
        f"{source.name} imports {name}"
        for source in SOURCES
        if source.package == package
        for name in imported(source.tree)
        if name.partition(".")[0] in FORBIDDEN[package]
    ]
    assert not wrong


def test_relative_imports_stay_inside_their_package() -> None:
    wrong = [
        f"{source.name} line {node.lineno}"
        for source in SOURCES
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ImportFrom) and node.level > len(source.path.relative_to(PACKAGES[source.package]).parts)
    ]
    assert not wrong


def test_msgpack_is_imported_by_the_job_codec_alone() -> None:
    assert importers("msgpack") == {"schemas/skillstream_schemas/job.py"}


def test_redis_py_is_imported_by_the_connection_alone() -> None:
    hashing = "client/skillstream/cluster.py"  # of keys, no I/O
    assert importers("redis") == {"client/skillstream/connection.py", "client/skillstream/sentinel.py", hashing}


def test_hiredis_is_imported_by_the_parser_alone() -> None:
    assert importers("hiredis") == {"client/skillstream/resp.py"}


def test_arq_is_imported_by_the_worker_alone() -> None:
    assert {name.partition("/")[0] for name in importers("arq")} <= {"worker"}


def test_commands_of_redis_stand_in_few_files() -> None:
    wrong = [
        f"{source.name}: {command}"
        for source in SOURCES
        if source.path.name not in COMMAND_FILES and source.name not in OWN_CONNECTION_FILES
        for command in commands(source.tree)
    ]
    assert not wrong


def test_files_that_may_name_commands_do() -> None:
    names = {source.name for source in SOURCES}
    assert names >= OWN_CONNECTION_FILES
    assert any(list(commands(source.tree)) for source in SOURCES if source.path.name == "broker.py")
    for source in SOURCES:
        if source.name in OWN_CONNECTION_FILES:
            assert list(commands(source.tree)), f"{source.name} names no command any more: take it off the list"


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ('await call("XADD", key)', 1), ('command = ("BLMPOP", "1", key)', 1), ('self.pack(["DEL", key])', 1),
        ('frozenset({"BUSY", "OOM"})', 0), ('client.request("GET", url)', 0), ('route(methods=["GET"])', 0), ('x == "SET"', 0),
    ],
)  # fmt: skip
def test_how_commands_are_found(code: str, found: int) -> None:
    source = f"async def f():\n    {code}\n"
    assert len(list(commands(ast.parse(source)))) == found


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_script_says_what_it_takes_and_returns(path: Path) -> None:
    text = path.read_text()
    header = text[: re.search(r"^(?!--)", text, re.MULTILINE).start()]  # type: ignore[union-attr]
    assert re.match(r"-- [A-Z].*[.:]?\n", header), "begins with a sentence"
    places = [header.find(f"\n-- {word}  ") for word in ("KEYS", "ARGV", "Returns")]
    assert min(places) > 0, "KEYS, ARGV and Returns stand in the header"
    assert places == sorted(places)
    keys = header[places[0] : places[1]]
    body = text[len(header) :]
    for number in {int(found) for found in re.findall(r"KEYS\[(\d+)\]", body)}:
        assert re.search(rf"\b{number} ", keys) or number > max(map(int, re.findall(r"\b(\d+) ", keys))), (
            f"KEYS[{number}] is described"
        )
    assert "os." not in body, "time is the server's"


def test_files_are_short() -> None:
    long = {source.name: len(source.text.splitlines()) for source in SOURCES}
    assert not {name: lines for name, lines in long.items() if lines > MAX_FILE_LINES and name not in SIZE_EXCEPTIONS}


def test_functions_are_short() -> None:
    long = {}
    for source in SOURCES:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                name = f"{source.name}:{node.name}"
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > MAX_FUNCTION_LINES and name not in SIZE_EXCEPTIONS:
                    long[name] = lines
    assert not long


def test_modules_are_named_for_what_they_do() -> None:
    vague = re.compile(r"(^|_)(utils?|common|helpers?|managers?|misc|shared)(_|$)")
    assert not [
        source.name for source in SOURCES if any(vague.search(Path(part).stem) for part in source.path.relative_to(ROOT).parts)
    ]


def test_modules_say_what_they_are_for() -> None:
    silent = [source.name for source in SOURCES if source.text.strip() and not ast.get_docstring(source.tree)]
    assert not silent


def test_each_package_is_typed() -> None:
    present = [folder for folder in PACKAGES.values() if list(folder.glob("*.py"))]
    assert not [folder.name for folder in present if not (folder / "py.typed").exists()]
