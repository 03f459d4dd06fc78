"""arq's job and result, serialised with msgpack; the only file that imports msgpack.

The layout is arq's own (arq 0.28, `arq.jobs.serialize_job` and `serialize_result`): a stock client and a stock
worker with `msgpack` as their serialiser read and write the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgpack

from .errors import MalformedJob
from .keys import RUN_SKILL

MAX_JOB_BYTES = 8 * 1024 * 1024


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
    try:
        return msgpack.unpackb(data, raw=False, strict_map_key=True)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise MalformedJob(f"the job is not msgpack: {type(error).__name__}: {error}") from None


def stub(enqueued_ms: int) -> bytes:
    """The job of a task whose request stands on its stream."""
    return pack({"t": None, "f": RUN_SKILL, "a": [], "k": {}, "et": enqueued_ms})


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
    return Job(function=function, request=args[0] if args else None, enqueued_ms=enqueued_ms)


def pack_result(
    job: Job, *, attempt: int, success: bool, result: dict[str, Any], started_ms: int, finished_ms: int, queue: str, job_id: str
) -> bytes:
    """What arq keeps under `arq:result:` for the client that waits; states are data, msgpack cannot pack exceptions."""
    args = [job.request] if job.request is not None else []
    return pack(
        {
            "t": attempt, "f": job.function, "a": args, "k": {}, "et": job.enqueued_ms, "s": success, "r": result,
            "st": started_ms, "ft": finished_ms, "q": queue, "id": job_id,
        }
    )  # fmt: skip
