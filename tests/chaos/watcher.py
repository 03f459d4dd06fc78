"""Looks at all acknowledged tasks while everything fails: none may be without a job before its final is there."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import redis

from tests.acceptance.checker import check_jobs
from tests.acceptance.report import Report

from .storm_agent import agent

_EACH_S = 0.25


class Watcher:
    """Responsible for looks at the broker by a connection that no fault touches but the broker's own.

    `acknowledged` grows while it watches; `looks` counts tasks looked at.
    """

    def __init__(self, port: int, acknowledged: Collection[str]) -> None:
        self.report = Report()
        self.looks = 0
        self._acknowledged = acknowledged
        self._ended: set[str] = set()
        self._broker = redis.Redis(port=port, decode_responses=True, socket_timeout=1.0, socket_connect_timeout=1.0)

    async def run(self) -> None:
        """Watches until it is cancelled."""
        try:
            while True:
                await asyncio.sleep(_EACH_S)
                await asyncio.to_thread(self._look)
        finally:
            self._broker.close()

    def _look(self) -> None:
        watched = set(self._acknowledged) - self._ended
        try:
            unfinished = check_jobs(self._broker, agent.name, watched, self.report)
        except redis.exceptions.RedisError:
            return  # the broker was killed or paused: the next look sees what it has kept
        self.looks += len(watched)
        self._ended |= watched - unfinished
