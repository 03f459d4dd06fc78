"""Every key and channel on the broker, as functions of what it belongs to.

Braces are literal: they keep the keys that one script touches in one slot of a cluster.
"""

from __future__ import annotations

from binascii import crc32
from dataclasses import dataclass

from .ids import is_name

RUN_SKILL = "run_skill"
"""Name of the arq function that runs a skill."""


@dataclass(frozen=True, slots=True)
class Keyspace:
    """Names of all keys under one prefix; `shards` is the number of inboxes."""

    prefix: str = "skillstream"
    shard_count: int = 16

    def shard(self, task_id: str) -> int:
        """Which inbox rings for this task."""
        return crc32(task_id.encode()) % self.shard_count

    def events(self, task_id: str) -> str:
        """Stream: the task itself."""
        return f"{self.prefix}:task:{{{self.shard(task_id)}}}:{task_id}:events"

    def cancel(self, task_id: str) -> str:
        """String with TTL: the reason of a requested cancellation."""
        return f"{self.prefix}:task:{{{self.shard(task_id)}}}:{task_id}:cancel"

    def inbox(self, shard: int) -> str:
        """Stream: doorbell for routers."""
        return f"{self.prefix}:inbox:{{{shard}}}"

    def inbox_of(self, task_id: str) -> str:
        """The inbox that rings for this task."""
        return self.inbox(self.shard(task_id))

    def context_messages(self, context_id: str) -> str:
        """List: recent messages of a conversation."""
        return f"{self.prefix}:context:{{{context_id}}}:messages"

    def context_version(self, context_id: str) -> str:
        """Integer: highest message id in that list."""
        return f"{self.prefix}:context:{{{context_id}}}:version"

    @property
    def agents(self) -> str:
        """Hash: agent name to its JSON card."""
        return f"{self.prefix}:agents"

    @property
    def control(self) -> str:
        """Channel: prompt notice of cancellations; a message is a task id."""
        return f"{self.prefix}:control"

    @property
    def shards(self) -> str:
        """String: the number of shards, fixed at first start."""
        return f"{self.prefix}:shards"

    def wake(self, agent: str) -> str:
        """List: job ids of recent enqueues, for idle workers."""
        return f"{self.prefix}:wake:{{{agent}}}"

    def connect_open(self, link: str) -> str:
        """Hash with TTL: what a connector took from elsewhere and still owes an answer for, as JSON by delivery id."""
        return f"{self.prefix}:connect:{{{link}}}:open"

    def connect_done(self, link: str, delivery: str) -> str:
        """String with TTL: what is kept of a delivery that was answered, so that a repetition runs nothing."""
        return f"{self.prefix}:connect:{{{link}}}:done:{delivery}"

    def connect_turn(self, link: str, conversation: str) -> str:
        """String with TTL: the task of the last turn in a foreign conversation."""
        return f"{self.prefix}:connect:{{{link}}}:turn:{conversation}"


def queue(agent: str) -> str:
    """arq's sorted set of jobs of an agent; a score is the unix ms from which the job may be claimed."""
    return f"arq:queue:{{{agent}}}"


def plain_queue(agent: str) -> str:
    """arq's queue of the plain functions and cron jobs registered beside an agent's skills."""
    return f"arq:queue:{{{agent}}}:plain"


def job_id(agent: str, task_id: str) -> str:
    """arq's id of the job of a task: also its member on the queue and its wake token."""
    return f"{{{agent}}}:{task_id}"


def task_of_job(agent: str, member: str) -> str | None:
    """The task id in an arq job id of this agent; None if the id has another form."""
    start = f"{{{agent}}}:"
    task_id = member.removeprefix(start)
    return task_id if member.startswith(start) and is_name(task_id) else None


def job(member: str) -> str:
    """arq's key of a job."""
    return f"arq:job:{member}"


def in_progress(member: str) -> str:
    """arq's key of the lease on a job."""
    return f"arq:in-progress:{member}"


def retry(member: str) -> str:
    """arq's counter of claims of a job."""
    return f"arq:retry:{member}"


def result(member: str) -> str:
    """arq's key of the result of a job."""
    return f"arq:result:{member}"
