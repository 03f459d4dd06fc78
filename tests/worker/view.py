"""What stands on the broker, as an operator reads it with redis-py."""

from __future__ import annotations

import json
from typing import Any, cast

import redis

from skillstream_schemas import keys as arq_keys
from skillstream_schemas.settings import Settings
from tests.support.verbs import AGENT

Fields = dict[str, str]


class View:
    """Responsible for reading streams, queues and leases from outside."""

    def __init__(self, outside: redis.Redis, settings: Settings) -> None:
        self.redis: Any = outside
        self.keys = settings.keys

    def entries(self, task_id: str) -> list[tuple[str, Fields]]:
        """The stream as it stands."""
        return cast(list[tuple[str, Fields]], self.redis.xrange(self.keys.events(task_id)))

    def ids(self, task_id: str) -> list[str]:
        """Ids of all entries."""
        return [entry_id for entry_id, _ in self.entries(task_id)]

    def shape(self, task_id: str) -> list[str]:
        """One word an entry: its state, what it hands back, or its kind and text."""
        return [_word(fields) for _, fields in self.entries(task_id)]

    def texts(self, task_id: str, attempt: int = 1) -> list[str]:
        """Texts of the chunks of an attempt."""
        start = f"{attempt}-"
        return [fields["text"] for entry_id, fields in self.entries(task_id) if entry_id.startswith(start) and _is_text(fields)]

    def opening(self, task_id: str, attempt: int = 1) -> Fields:
        """Fields of an attempt's opening."""
        return dict(self.entries(task_id))[f"{attempt}-1"]

    def final(self, task_id: str) -> Fields:
        """Fields of the final, which is the last entry and the only one."""
        entries = self.entries(task_id)
        kinds = [fields["type"] for _, fields in entries]
        assert kinds.count("final") == 1, f"finals on the stream: {entries}"
        assert kinds[-1] == "final", f"something follows the final: {entries}"
        return entries[-1][1]

    def metadata(self, task_id: str) -> dict[str, Any]:
        """Metadata of the final."""
        return cast(dict[str, Any], json.loads(self.final(task_id)["metadata"]))

    def rings(self, task_id: str) -> list[str]:
        """Kinds of the task's rings at the inbox, in order."""
        rings = self.redis.xrange(self.keys.inbox_of(task_id))
        return [fields["kind"] for _, fields in rings if fields["task"] == task_id]

    def queued(self, agent: str = AGENT) -> list[str]:
        """Members of the agent's queue."""
        return cast(list[str], self.redis.zrange(arq_keys.queue(agent), 0, -1))

    def score(self, task_id: str, agent: str = AGENT) -> float | None:
        """Unix ms from which the task's job may be claimed, None where it is not queued."""
        return cast("float | None", self.redis.zscore(arq_keys.queue(agent), arq_keys.job_id(agent, task_id)))

    def lease(self, task_id: str, agent: str = AGENT) -> str | None:
        """Who holds the task's job."""
        return cast("str | None", self.redis.get(arq_keys.in_progress(arq_keys.job_id(agent, task_id))))

    def arq_keys_of(self, task_id: str, agent: str = AGENT) -> list[str]:
        """arq's keys of the task's job that exist, without its result."""
        member = arq_keys.job_id(agent, task_id)
        keys = (arq_keys.in_progress(member), arq_keys.job(member), arq_keys.retry(member))
        return [key for key in keys if self.redis.exists(key)]

    def now_ms(self) -> int:
        """The server's time."""
        seconds, micros = self.redis.time()
        return int(seconds) * 1000 + int(micros) // 1000


def _is_text(fields: Fields) -> bool:
    return fields["type"] == "chunk" and "text" in fields


def _word(fields: Fields) -> str:
    if fields["type"] == "chunk":
        return f"chunk {fields['text']}" if "text" in fields else f"{fields['mode']} {fields['data']}"
    if fields["type"] == "final":
        return f"final {fields['state']}"
    return fields.get("handed_back") or (f"status {fields['text']}" if "text" in fields else fields["state"])
