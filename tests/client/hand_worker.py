"""A worker played by hand: writes a task's stream entry by entry with redis-py, as a publisher in any language would."""

from __future__ import annotations

from typing import Any, cast

import redis

from skillstream_schemas import keys as arq_keys
from skillstream_schemas.card import AgentCard, SkillCard
from skillstream_schemas.request import OnRetry
from skillstream_schemas.settings import Settings

AGENT = "echo"
AT = "1700000000000"
Fields = dict[str, str]


class HandWorker:
    """Responsible for what a worker would write; ids and claims are the test's."""

    def __init__(self, outside: redis.Redis, settings: Settings) -> None:
        self._outside: Any = outside
        self._keys = settings.keys

    def announce(self, *skills: SkillCard, agent: str = AGENT) -> None:
        """Puts the agent's card on the broker."""
        card = AgentCard(name=agent, queue=arq_keys.queue(agent), skills=skills or (SkillCard(name="say"),))
        self._outside.hset(self._keys.agents, agent, card.model_dump_json())

    def add(self, task_id: str, event_id: str, **fields: object) -> None:
        """Adds an entry as it stands."""
        key = self._keys.events(task_id)
        self._outside.xadd(key, {name: str(value) for name, value in fields.items()} | {"at": AT}, id=event_id)
        self._outside.expire(key, 600)

    def submit(self, task_id: str, **changes: object) -> None:
        """Adds the submission."""
        request: dict[str, object] = {"agent": AGENT, "skill": "say", "message": "hi"}
        self.add(task_id, "0-1", type="status", state="submitted", v=1, **(request | changes))

    def open(self, task_id: str, attempt: int = 1, *, claim: int | None = None, **changes: object) -> None:
        """Opens an attempt."""
        fields: dict[str, object] = {"worker": f"w{attempt}", "claim": claim or attempt * 1000, "strikes": attempt}
        self.add(task_id, f"{attempt}-1", type="status", state="working", **(fields | changes))

    def say(self, task_id: str, *texts: str, attempt: int = 1, seq: int = 2) -> None:
        """Adds text chunks, the first as `seq`."""
        for place, text in enumerate(texts, seq):
            self.add(task_id, f"{attempt}-{place}", type="chunk", text=text)

    def finish(self, task_id: str, event_id: str, text: str, *, chunks: int, state: str = "completed", **changes: object) -> None:
        """Adds the final and ends the job."""
        self.add(task_id, event_id, type="final", state=state, text=text, metadata="{}", chunks=chunks, **changes)
        self.settle(task_id)

    def run(self, task_id: str, *texts: str) -> None:
        """Runs a whole attempt."""
        self.open(task_id)
        self.say(task_id, *texts)
        self.finish(task_id, f"1-{2 + len(texts)}", "".join(texts), chunks=len(texts))

    def entries(self, task_id: str) -> list[tuple[str, Fields]]:
        """The stream as it stands."""
        return cast(list[tuple[str, Fields]], self._outside.xrange(self._keys.events(task_id)))

    def rings(self, task_id: str) -> list[str]:
        """Kinds of the task's rings at the inbox, in order."""
        rings = self._outside.xrange(self._keys.inbox_of(task_id))
        return [fields["kind"] for _, fields in rings if fields["task"] == task_id]

    def queued(self, agent: str = AGENT) -> dict[str, float]:
        """Members of the agent's queue and their scores."""
        return dict(self._outside.zrange(arq_keys.queue(agent), 0, -1, withscores=True))

    def settle(self, task_id: str, agent: str = AGENT) -> None:
        """Takes a job off the queue."""
        member = arq_keys.job_id(agent, task_id)
        self._outside.delete(arq_keys.job(member), arq_keys.in_progress(member))
        self._outside.zrem(arq_keys.queue(agent), member)

    def settle_all(self) -> None:
        """Takes all jobs off the queue, as a worker would in the end."""
        for member in self.queued():
            self.settle(member.partition(":")[2])


def on_retry_card(on_retry: OnRetry = OnRetry.RESTART) -> SkillCard:
    """A skill with a price and attempts of its own."""
    return SkillCard(name="say", price_micros=50_000, max_attempts=5, on_retry=on_retry)
