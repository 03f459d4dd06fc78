"""What an attempt writes last: the fields of its final, and arq's result for a stock client."""

from __future__ import annotations

from collections.abc import Mapping

from skillstream_schemas import job as arq_job
from skillstream_schemas import keys as arq_keys
from skillstream_schemas.event import agent_metadata
from skillstream_schemas.job import Job
from skillstream_schemas.request import compact_json

from .broker import Lease
from .outcome import End


def final_fields(agent: str, end: End, text: str, chunks: int, usage: Mapping[str, int | float], at_ms: int) -> list[str]:
    """The final's fields as name, value, …, in the order of `FinalEvent.to_fields`."""
    fields = ["type", "final", "state", end.state.value, "text", text]
    if end.data is not None:
        fields += ["data", compact_json(end.data)]
    if end.metadata:
        fields += ["metadata", compact_json({**end.metadata, **agent_metadata(agent)})]
    else:
        # `agent_metadata` as most finals carry it; names of agents need no escapes
        fields += ["metadata", f'{{"agentId":"{agent}","agentName":"{agent}"}}']
    if end.error is not None:
        fields += ["error", end.error.value]
    if end.reason is not None:
        fields += ["reason", end.reason]
    if usage:
        fields += ["usage", compact_json(usage)]
    fields += ["chunks", str(chunks), "at", str(at_ms)]
    return fields


def stock_result(lease: Lease, job: Job, final: Mapping[str, str], claims: int, started_ms: int, finished_ms: int) -> bytes:
    """What a stock client gets from `Job.result()`: the final's fields, its state among them, as data."""
    return arq_job.pack_result(
        job,
        attempt=claims,
        success=True,
        result=dict(final),
        started_ms=started_ms,
        finished_ms=finished_ms,
        queue=arq_keys.queue(lease.agent),
        job_id=arq_keys.job_id(lease.agent, lease.task_id),
    )
