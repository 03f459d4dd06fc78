"""arq's job and result, serialised with msgpack; the only file that imports msgpack.

The layout is arq's own (arq 0.28, `arq.jobs.serialize_job` and `serialize_result`): a stock client and a stock
worker with `msgpack` as their serialiser read and write the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgpack

from .errors import MalformedJob
from .json_text import MAX_JSON_DEPTH, MAX_JSON_NODES
from .keys import RUN_SKILL, job_id, queue
from .limits import MIB

MAX_JOB_BYTES = 8 * MIB
MAX_JOB_NODES = MAX_JSON_NODES
"""Arrays and maps in one job: an empty one is a byte there and seventy in memory."""

_Node = TypeVar("_Node")


@dataclass(frozen=True, slots=True)
class Job:
    """A job on an arq queue.

    `request` is the one argument of a stock client's job in native types, None for a job of ours
    (its request stands on the task's stream). `enqueued_ms` is unix ms.
    """

    function: str
    request: dict[str, Any] | None
    enqueued_ms: int

    @property
    def is_stock(self) -> bool:
        """True for a job that brings its own request."""
        return self.request is not None


def pack(value: Any) -> bytes:
    """Serialises for arq: pass it as `job_serializer`."""
    return bytes(msgpack.packb(value, use_bin_type=True))


def unpack(data: bytes) -> Any:
    """Reads what arq or `pack` wrote: pass it as `job_deserializer`; raises MalformedJob."""
    if len(data) > MAX_JOB_BYTES:
        raise MalformedJob(f"the job has {len(data)} bytes, the limit is {MAX_JOB_BYTES}")
    nodes = _Nodes()
    try:
        return msgpack.unpackb(data, raw=False, strict_map_key=True, object_hook=nodes.count, list_hook=nodes.count)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise MalformedJob(f"the job is not msgpack: {type(error).__name__}: {error}") from None


def stub(enqueued_ms: int) -> bytes:
    """The job of a task whose request stands on its stream."""
    return pack({"t": None, "f": RUN_SKILL, "a": [], "k": {}, "et": enqueued_ms})


_STUB_HEAD = stub(1 << 40)[:-8]
_STUB_BYTES = len(_STUB_HEAD) + 8


def is_stub(data: bytes) -> bool:
    """True for the job of a task whose request stands on its stream, as `stub` and our scripts write it."""
    return len(data) == _STUB_BYTES and data.startswith(_STUB_HEAD)


def read_job(data: bytes) -> Job:
    """Reads a job from the queue; raises MalformedJob for anything but arq's layout with one argument at most."""
    fields = unpack(data)
    if not isinstance(fields, dict):
        raise MalformedJob(f"the job is {type(fields).__name__}, not a map")
    function, args, kwargs = fields.get("f"), fields.get("a"), fields.get("k")
    if not isinstance(function, str) or not isinstance(args, list) or not isinstance(kwargs, dict):
        raise MalformedJob("the job lacks arq's fields f, a and k")
    enqueued_ms = fields.get("et")
    if type(enqueued_ms) is not int:
        raise MalformedJob("the job lacks arq's field et")
    if kwargs or len(args) > 1:
        raise MalformedJob("a skill's job has no keyword arguments and one argument at most: its request")
    if args and not isinstance(args[0], dict):
        raise MalformedJob("the argument of a skill's job is its request, a map")
    if args:
        _check_plain(args[0])
    return Job(function=function, request=args[0] if args else None, enqueued_ms=enqueued_ms)


class _Nodes:
    """Responsible for the end of a parse that makes too many objects."""

    def __init__(self) -> None:
        self._left = MAX_JOB_NODES

    def count(self, node: _Node) -> _Node:
        """Called by msgpack with each array and map once it is read."""
        self._left -= 1
        if self._left < 0:
            raise ValueError(f"more than {MAX_JOB_NODES} arrays and maps")
        return node


def _check_plain(request: dict[str, Any]) -> None:
    """Raises MalformedJob for values that JSON does not have, and for nesting that no other reader takes."""
    level: list[Any] = [request]
    for _ in range(MAX_JSON_DEPTH):
        inner: list[Any] = []
        for node in level:
            for value in node.values() if isinstance(node, dict) else node:
                if isinstance(value, dict | list):
                    inner.append(value)
                elif not (value is None or isinstance(value, str | int | float)):
                    raise MalformedJob(f"the request holds {type(value).__name__}, which JSON does not have")
        if not inner:
            return
        level = inner
    raise MalformedJob(f"the request has more than {MAX_JSON_DEPTH} levels")


def pack_result(
    job: Job, agent: str, task_id: str, *, attempt: int, final: Mapping[str, str], started_ms: int, finished_ms: int
) -> bytes:
    """What arq keeps under `arq:result:` for the client that waits: the fields of the final.

    Failed or not, the function did its work for arq: states are data, msgpack cannot pack exceptions.
    """
    args = [job.request] if job.request is not None else []
    return pack(
        {
            "t": attempt, "f": job.function, "a": args, "k": {}, "et": job.enqueued_ms, "s": True, "r": dict(final),
            "st": started_ms, "ft": finished_ms, "q": queue(agent), "id": job_id(agent, task_id),
        }
    )  # fmt: skip
