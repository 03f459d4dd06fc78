"""What the attempts of a worker share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from skillstream import Client
from skillstream.broker import Settlement
from skillstream.clock import Clock
from skillstream_schemas.settings import Settings

from .broker import WorkerBroker
from .strays import Strays


class Settlements(Protocol):
    """Who takes finished jobs off the queue."""

    def settle(self, agent: str, settlement: Settlement) -> None:
        """Has a job settled soon, whose final is on its stream."""


@dataclass(frozen=True, slots=True)
class Services:
    """Handed to each attempt; all of it outlives them."""

    settings: Settings
    broker: WorkerBroker
    client: Client
    settler: Settlements
    clock: Clock
    strays: Strays
