"""A broker that is away for long fills no log: one line, then ever fewer, and one when it is back."""

from __future__ import annotations

import pytest

from skillstream.clock import Clock
from skillstream.outage import Outage
from skillstream_schemas.errors import BrokerRefused, BrokerUnavailable


class HandClock(Clock):
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def elapsed_s(self) -> float:
        return self.now_s


def test_an_hour_of_failures_is_a_dozen_lines(caplog: pytest.LogCaptureFixture) -> None:
    clock = HandClock()
    outage = Outage(clock)
    for second in range(3600):
        clock.now_s = second
        for agent in range(50):
            outage.met(f"claiming jobs of a{agent}", BrokerUnavailable("nobody listens"))
    assert 5 <= len(caplog.records) <= 12
    assert caplog.records[0].levelname == "WARNING"
    assert "claiming jobs of a0: broker_unavailable: nobody listens" in caplog.records[0].getMessage()


def test_it_is_over_once_when_all_works_again(caplog: pytest.LogCaptureFixture) -> None:
    clock = HandClock()
    outage = Outage(clock)
    outage.over("one")
    outage.met("one", BrokerUnavailable())
    outage.met("two", BrokerUnavailable())
    clock.now_s = 7
    outage.over("one")
    assert len(caplog.records) == 1
    outage.over("two")
    outage.over("two")
    assert [record.getMessage() for record in caplog.records[1:]] == ["all works again, after 7 s"]
    outage.met("one", BrokerUnavailable())
    assert len(caplog.records) == 3, "the next outage is said at once"


def test_another_reason_is_said_at_once(caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage(HandClock())
    outage.met("one", BrokerUnavailable())
    outage.met("two", BrokerRefused("WRONGTYPE"))
    outage.met("two", BrokerRefused("WRONGTYPE"))
    assert ["WRONGTYPE" in record.getMessage() for record in caplog.records] == [False, True]
