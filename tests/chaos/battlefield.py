"""The processes and wires of a chaos run, and what is done to them."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.cutting_proxy import CuttingProxy
from tests.support.processes import Process
from tests.support.redis_server import RedisServer, valkey_binary

from .faults import Fault

LEASE_S = 2.0
ENVIRONMENT = {
    "SKILLSTREAM_SHARDS": "4", "SKILLSTREAM_PATIENCE_S": "4", "SKILLSTREAM_ANSWER_TIMEOUT_S": "2", "SKILLSTREAM_POLL_S": "0.5",
    "SKILLSTREAM_CONNECT_TIMEOUT_S": "1", "SKILLSTREAM_GRACE_S": "1", "SKILLSTREAM_LEASE_S": str(LEASE_S),
}  # fmt: skip
"""Settings of all parts: outages of a run are shorter and longer than their patience."""
APPEND_ALWAYS = ("--appendonly", "yes", "--appendfsync", "always")
"""An answer is sent behind its write to the append-only file: what was acknowledged is there after a kill.

With everysec a write may wait up to two seconds for a sync under way, its answer does not: a kill may lose it then, and
the checker could not tell a loss of the broker from one of ours.
"""
_WORKERS, _ROUTERS, _CLIENTS = 3, 2, 2
_PLAIN_EXITS = {0, 4, -signal.SIGKILL}
"""Ended as told, found no broker, was killed. SIGTERM ends one that has not begun, or found no broker."""
_STOP_S = 30.0
_LOOK_S = 0.1


class Slot:
    """Responsible for one process that is always started again, and for the wire between it and the broker."""

    def __init__(self, name: str, wire: CuttingProxy, start: Callable[[CuttingProxy], Process]) -> None:
        self.name, self.wire, self.is_held = name, wire, False
        self.deaths = 0
        self.log: list[str] = []
        self.violations: list[str] = []
        self.process = start(wire)
        self._start = start

    async def run(self) -> None:
        """Starts the process again whenever it has ended by itself, until it is cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            if not self.is_held and self.process.exit_code is not None:
                self.deaths += self.process.exit_code == -signal.SIGKILL
                await self.restart()

    async def restart(self) -> None:
        """Kills the process where it runs, looks at its exit code, and starts another."""
        await self.end()
        self.process = self._start(self.wire)

    async def end(self) -> None:
        """Kills the process where it runs and looks at its exit code."""
        await asyncio.to_thread(self.process.kill)
        was_ready = any("is ready" in line for line in self.process.lines)
        told_too_early = self.process.exit_code == -signal.SIGTERM and not was_ready
        if self.process.exit_code not in _PLAIN_EXITS and not told_too_early:
            tail = "\n    ".join(self.process.lines[-15:])
            self.violations.append(f"{self.name} ended with {self.process.exit_code}:\n    {tail}")
        self.log += self.process.lines


class Battlefield:
    """Responsible for the broker, workers, routers and wires; `counts` says what was done to them."""

    def __init__(self, folder: Path) -> None:
        self.database = folder / "router.db"
        self.counts: Counter[str] = Counter()
        self.client_wires: list[CuttingProxy] = []
        self.workers: list[Slot] = []
        self.routers: list[Slot] = []
        self._data = folder / "broker"
        self._data.mkdir()
        self.broker = RedisServer(valkey_binary(), *APPEND_ALWAYS, keep_data=self._data)
        self._broker_busy = asyncio.Lock()
        self._stack = AsyncExitStack()
        self._supervision: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._stack.enter_context(self.broker)
        try:
            self.client_wires = [await self._wire() for _ in range(_CLIENTS)]
            self.workers = [Slot(f"worker {n}", await self._wire(), _worker) for n in range(_WORKERS)]
            self.routers = [Slot(f"router {n}", await self._wire(), self._router) for n in range(_ROUTERS)]
            for slot in self.slots:
                await asyncio.to_thread(slot.process.wait_for, "is ready", 30.0)
        except BaseException:
            await self._end()
            raise
        self._supervision = [asyncio.create_task(slot.run()) for slot in self.slots]
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._end()

    @property
    def slots(self) -> list[Slot]:
        """All processes but the broker."""
        return [*self.workers, *self.routers]

    @property
    def wires(self) -> list[CuttingProxy]:
        """All wires."""
        return [*self.client_wires, *(slot.wire for slot in self.slots)]

    async def strike(self, fault: Fault) -> None:
        """Does what a fault says, and undoes it after its time; one on something already struck is passed over."""
        verb, _, what = fault.kind.partition(" ")
        if what == "broker":
            await self._strike_broker(verb, fault.seconds)
        elif what:
            slots = self.workers if what == "worker" else self.routers
            await self._strike_process(verb, slots[fault.target % len(slots)], fault.seconds)
        else:
            await self._strike_wire(verb, self.wires[fault.target % len(self.wires)], fault)

    def heal(self) -> None:
        """Makes all wires good; processes come back by themselves."""
        for wire in self.wires:
            wire.cut_up_after = wire.cut_down_after = None
            wire.delay_s = 0.0
            if wire.swallows:
                wire.drop()
                wire.swallows = False

    async def stop(self) -> None:
        """Ends all processes as an operator does; each has to end by itself."""
        await self._end_supervision()
        for slot in self.slots:
            slot.process.send(signal.SIGTERM)
        await asyncio.gather(*(self._ended(slot) for slot in self.slots))

    async def _strike_broker(self, verb: str, seconds: float) -> None:
        if self._broker_busy.locked():
            return
        async with self._broker_busy:
            if verb == "pause":
                self.counts["pauses of the broker"] += 1
                self.broker.pause()
                await asyncio.sleep(seconds)
                self.broker.resume()
            else:
                self.counts["kills of the broker"] += 1
                self.broker.stop()
                await asyncio.sleep(seconds)
                await asyncio.to_thread(self.broker.start)

    async def _strike_process(self, verb: str, slot: Slot, seconds: float) -> None:
        if slot.is_held or slot.process.exit_code is not None:
            return
        what = slot.name.split()[0]
        slot.is_held = True
        try:
            match verb:
                case "pause":
                    self.counts[f"pauses of {what}s"] += 1
                    slot.process.send(signal.SIGSTOP)
                    await asyncio.sleep(seconds)
                    slot.process.send(signal.SIGCONT)
                case "kill":
                    self.counts[f"kills of {what}s"] += 1
                    slot.process.send(signal.SIGKILL)
                    await asyncio.sleep(seconds)
                    await slot.restart()
                case "stop":
                    self.counts[f"stops of {what}s"] += 1
                    slot.process.send(signal.SIGTERM)
                    await self._ended(slot)
                    await slot.restart()
        finally:
            slot.is_held = False

    async def _strike_wire(self, verb: str, wire: CuttingProxy, fault: Fault) -> None:
        match verb:
            case "cut" if fault.is_upward:
                wire.cut_up_after = fault.bytes_passed
            case "cut":
                wire.cut_down_after = fault.bytes_passed
            case "drop":
                self.counts["drops"] += 1
                wire.drop()
            case "delay":
                self.counts["delays"] += 1
                wire.delay_s = fault.delay_s
                await asyncio.sleep(fault.seconds)
                wire.delay_s = 0.0
            case "swallow":
                self.counts["swallows"] += 1
                wire.swallows = True
                await asyncio.sleep(fault.seconds)
                wire.drop()  # a connection that lost answers is never used on
                wire.swallows = False

    async def _ended(self, slot: Slot) -> None:
        try:
            await asyncio.to_thread(slot.process.wait, _STOP_S)
        except subprocess.TimeoutExpired:
            slot.violations.append(f"{slot.name} did not end within {_STOP_S:g} s of SIGTERM")

    async def _wire(self) -> CuttingProxy:
        return await self._stack.enter_async_context(CuttingProxy(self.broker.port))

    def _router(self, wire: CuttingProxy) -> Process:
        arguments = (wire.url, f"sqlite:///{self.database}")
        return Process(*arguments, module="tests.chaos.quick_router", env=ENVIRONMENT)

    async def _end_supervision(self) -> None:
        for task in self._supervision:
            task.cancel()
        await asyncio.gather(*self._supervision, return_exceptions=True)

    async def _end(self) -> None:
        await self._end_supervision()
        for slot in self.slots:
            await slot.end()
        await self._stack.aclose()


def _worker(wire: CuttingProxy) -> Process:
    arguments = ("worker", "tests.chaos.storm_agent:agent", "--redis", wire.url, "--lease", str(LEASE_S))
    return Process(*arguments, env={**ENVIRONMENT, "SKILLSTREAM_LOG_LEVEL": "WARNING"})
