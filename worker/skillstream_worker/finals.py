"""What an attempt writes last: the fields of its final."""

from __future__ import annotations

from collections.abc import Mapping

from skillstream_schemas.event import agent_metadata
from skillstream_schemas.request import compact_json

from .outcome import End


def final_fields(agent: str, end: End, text: str, chunks: int, usage: Mapping[str, int | float]) -> list[str]:
    """The final's fields as name, value, …, in the order of `FinalEvent.to_fields`, without its time."""
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
    fields += ["chunks", str(chunks)]
    return fields
