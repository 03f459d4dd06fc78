"""A claimer that reads names ahead of its free slots: what it has no room for goes back to where others look."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import redis

from skillstream.clock import Clock
from skillstream_schemas import keys as arq_keys
from skillstream_schemas.settings import Settings
from skillstream_worker import Agent
from skillstream_worker.broker import Claimed, ClaimedJob, WorkerBroker
from skillstream_worker.claimer import Claimer
from skillstream_worker.slots import Slots
from tests.client.bounds import until
from tests.support.protocol_bench import AGENT, ProtocolBench


class _Turning(WorkerBroker):
    """A broker whose claims take so long that two attempts end meanwhile."""

    slots: Slots

    async def claim(self, agent: str, candidates: Sequence[str], wanted: int) -> Claimed:
        for _ in range(2):
            self.slots.take()
            self.slots.give_back()
        return await super().claim(agent, candidates, wanted)


class _Set(Clock):
    now_s = 0.0

    def elapsed_s(self) -> float:
        return self.now_s


async def test_a_task_of_others_is_left_alone_until_the_card_was_renewed_behind_its_last_word(settings: Settings) -> None:
    """A skill that was announced just before leaves the card with the first announcement after `forget_s`."""
    clock = _Set()
    claimer = Claimer(WorkerBroker(settings, "w1"), Agent(name=AGENT), Slots(1), clock, lambda agent, job: None)
    claimer.avoid("t1")
    clock.now_s = settings.forget_s + settings.announce_s - 0.001
    assert claimer._without_avoided(["t1", "t2"]) == ["t2"]
    clock.now_s += 0.002
    assert claimer._without_avoided(["t1", "t2"]) == ["t1", "t2"]


async def test_names_without_room_go_back_to_the_wake_list(
    bench: ProtocolBench, outside: redis.Redis, settings: Settings
) -> None:
    await bench.submitted("t1", "t2", "t3")
    broker = _Turning(settings, "w1")
    await broker.open()
    broker.slots = slots = Slots(1)
    won: list[str] = []

    def start(agent: Agent, job: ClaimedJob) -> None:
        won.append(job.task_id)

    claimer = Claimer(broker, Agent(name=AGENT), slots, Clock(), start)
    running = asyncio.create_task(claimer.run())
    wake = settings.keys.wake(AGENT)
    members = [arq_keys.job_id(AGENT, task_id) for task_id in ("t2", "t3")]
    try:
        await until(lambda: won == ["t1"] and outside.lrange(wake, 0, -1) == members)
        assert bench.outside.pttl(wake) > 0
        slots.give_back()  # and with room again they are taken
        await until(lambda: won == ["t1", "t2"])
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await broker.close()
