"""Keys are those of the wire contract, and what one script touches lies in one slot."""

from __future__ import annotations

from binascii import crc32

from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from skillstream_schemas import keys as arq_keys
from skillstream_schemas.keys import Keyspace

from .strategies import names, texts


def test_the_keys_of_the_contract() -> None:
    keys = Keyspace()
    n = crc32(b"task-1") % 16
    assert keys.events("task-1") == f"skillstream:task:{{{n}}}:task-1:events"
    assert keys.cancel("task-1") == f"skillstream:task:{{{n}}}:task-1:cancel"
    assert keys.inbox_of("task-1") == keys.inbox(n) == f"skillstream:inbox:{{{n}}}"
    assert keys.context_messages("c") == "skillstream:context:{c}:messages"
    assert keys.context_version("c") == "skillstream:context:{c}:version"
    assert (keys.agents, keys.control, keys.shards) == ("skillstream:agents", "skillstream:control", "skillstream:shards")
    assert keys.wake("a") == "skillstream:wake:{a}"
    assert arq_keys.queue("a") == "arq:queue:{a}"
    member = arq_keys.job_id("a", "t")
    assert member == "{a}:t"
    assert [f(member) for f in (arq_keys.job, arq_keys.in_progress, arq_keys.retry, arq_keys.result)] == [
        "arq:job:{a}:t", "arq:in-progress:{a}:t", "arq:retry:{a}:t", "arq:result:{a}:t"
    ]  # fmt: skip


@given(names, names, st.integers(1, 16_384))
def test_keys_that_scripts_use_together_share_a_slot(task_id: str, agent: str, shards: int) -> None:
    keys = Keyspace("team", shards)
    of_task = [keys.events(task_id), keys.cancel(task_id), keys.inbox_of(task_id)]
    member = arq_keys.job_id(agent, task_id)
    of_agent = [
        arq_keys.queue(agent), arq_keys.job(member), arq_keys.in_progress(member), arq_keys.retry(member),
        arq_keys.result(member), keys.wake(agent),
    ]  # fmt: skip
    for group in (of_task, of_agent, [keys.context_messages(agent), keys.context_version(agent)]):
        assert len({key_slot(key.encode()) for key in group}) == 1


@given(names, names)
def test_a_job_id_reads_back_its_task(agent: str, task_id: str) -> None:
    assert arq_keys.task_of_job(agent, arq_keys.job_id(agent, task_id)) == task_id


@given(names, texts)
def test_other_members_are_no_job_ids(agent: str, text: str) -> None:
    found = arq_keys.task_of_job(agent, text)
    assert found is None or text == arq_keys.job_id(agent, found)
    assert arq_keys.task_of_job(agent, f"{{{agent}x}}:t") is None
    assert arq_keys.task_of_job(agent, f"{{{agent}}}:") is None
    assert arq_keys.task_of_job(agent, f"{{{agent}}}:a b") is None
