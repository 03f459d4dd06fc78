"""Rings as Redis lists them."""

from __future__ import annotations

from collections.abc import Sequence

from skillstream.resp import Reply
from skillstream_schemas.ids import is_name

from .projection import Ring

_KINDS = {kind.encode(): kind for kind in ("submitted", "opened", "final", "cancel")}


def rings_of(shard: int, entries: Sequence[Reply]) -> list[Ring]:
    """Entries of an inbox as rings; one that is none says why."""
    rings: list[Ring] = []
    names: dict[bytes, str] = {}  # a task rings several times
    for raw_id, parts in entries:
        # as our scripts ring; whatever looks otherwise is taken apart with care
        if parts is not None and len(parts) == 4 and parts[0] == b"task" and parts[2] == b"kind" and parts[3] in _KINDS:
            task_id = names.get(parts[1]) or parts[1].decode(errors="replace")
            if parts[1] in names or is_name(task_id):
                names[parts[1]] = task_id
                rings.append(Ring(shard, raw_id.decode(), task_id, _KINDS[parts[3]]))
                continue
        rings.append(_ring(shard, raw_id.decode(), parts))
    return rings


def _ring(shard: int, ring_id: str, parts: Reply) -> Ring:
    if parts is None:
        return Ring(shard, ring_id, problem="it was deleted")
    try:
        texts = [part.decode() for part in parts]
    except UnicodeDecodeError:
        return Ring(shard, ring_id, problem="a field is not UTF-8")
    fields = dict(zip(texts[::2], texts[1::2], strict=True))
    task_id, agent = fields.get("task", ""), fields.get("agent")
    if not is_name(task_id):
        return Ring(shard, ring_id, problem="it names no task")
    return Ring(shard, ring_id, task_id, fields.get("kind", ""), agent if agent and is_name(agent) else None)
