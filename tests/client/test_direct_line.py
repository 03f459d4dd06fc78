"""A caller without an event loop has a line of its own: what goes over it, and what happens where anything is in the way."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

from skillstream import SyncClient, direct_line
from skillstream.batching import Call, ScriptBatch
from skillstream.resp import new_parser
from skillstream_schemas import keys as arq_keys
from skillstream_schemas.errors import BrokerRefused, BrokerUnavailable, InvalidRequest, TaskIdTaken
from skillstream_schemas.settings import Settings
from tests.conftest import make_settings
from tests.support.redis_server import RedisServer

from .bounds import BOUND_S
from .hand_worker import AGENT, HandWorker


@pytest.fixture
def client(settings: Settings, hand: HandWorker) -> Iterator[SyncClient]:
    """A client whose line is open."""
    with SyncClient(settings=settings) as opened:
        opened.submit(AGENT, "say", "reads the cards", task_id="first")
        opened.submit(AGENT, "say", "opens the line", task_id="second")
        assert repr(opened._line) == "<DirectLine open>"
        yield opened


def is_queued_once(hand: HandWorker, task_id: str) -> bool:
    """True where a task has one entry, one ring and its job."""
    is_once = len(hand.entries(task_id)) == 1 and hand.rings(task_id) == ["submitted"]
    return is_once and arq_keys.job_id(AGENT, task_id) in hand.queued()


class Wire:
    """What a line needs of redis-py's connection."""

    def __init__(self, line: socket.socket) -> None:
        self._sock = line

    def disconnect(self) -> None:
        """Closes the socket."""
        self._sock.close()


class AnyBatch:
    """What a line needs of a batch."""

    def command(self, calls: object) -> bytes:
        """Any command."""
        return b"*1\r\n$4\r\nPING\r\n"


def connections_of(outside: redis.Redis) -> int:
    """How many connections the server has."""
    clients: Any = outside.client_list()
    return len(clients)


class TestOpen:
    def test_a_submission_needs_no_other_thread(self, client: SyncClient, hand: HandWorker) -> None:
        let_go = threading.Event()
        client._loop.call_soon_threadsafe(let_go.wait)
        try:
            task = client.submit(AGENT, "say", "hi", context_id="c", payer="acme", task_id="t1", delay=60)
        finally:
            let_go.set()
        assert task.id == "t1"
        assert is_queued_once(hand, "t1")
        [(_, fields)] = hand.entries("t1")
        assert (fields["message"], fields["context_id"], fields["payer"]) == ("hi", "c", "acme")

    @pytest.mark.guarantee("G6")
    def test_a_repeat_runs_nothing_twice_and_repairs(self, client: SyncClient, hand: HandWorker) -> None:
        hand.submit("t1")  # another client died between its two steps
        for _ in range(3):
            assert client.submit(AGENT, "say", "hi", task_id="t1").id == "t1"
            assert len(hand.entries("t1")) == 1
            assert arq_keys.job_id(AGENT, "t1") in hand.queued()
        hand.run("t1", "done")
        client.submit(AGENT, "say", "hi", task_id="t1")
        assert arq_keys.job_id(AGENT, "t1") not in hand.queued()
        assert client.task("t1").result(timeout=BOUND_S).text == "done"

    @pytest.mark.guarantee("G6")
    def test_another_request_under_the_id_is_refused(self, client: SyncClient, hand: HandWorker) -> None:
        client.submit(AGENT, "say", "hi", task_id="t1")
        with pytest.raises(TaskIdTaken, match="other message"):
            client.submit(AGENT, "say", "ho", task_id="t1")
        assert hand.entries("t1")[0][1]["message"] == "hi"

    def test_bad_input_is_refused_and_the_line_stays(self, client: SyncClient, outside: redis.Redis) -> None:
        with pytest.raises(InvalidRequest):
            client.submit(AGENT, "say", "hi", payer="")
        assert client._line.is_open

    def test_threads_at_once_share_the_line_and_the_loop(
        self, client: SyncClient, hand: HandWorker, outside: redis.Redis
    ) -> None:
        connections = connections_of(outside)
        with ThreadPoolExecutor(8) as pool:
            submitting = pool.map(
                lambda n: client.submit(AGENT, "say", "hi", task_id=f"t{n}").id, range(200), timeout=BOUND_S * 4
            )
            made = list(submitting)
        assert made == [f"t{number}" for number in range(200)]
        assert all(is_queued_once(hand, task_id) for task_id in made)
        assert connections_of(outside) == connections, "no thread has a connection of its own"


class TestInTheWay:
    @pytest.mark.guarantee("G6")
    def test_a_killed_connection_is_another_one_with_the_next(
        self, client: SyncClient, hand: HandWorker, outside: redis.Redis
    ) -> None:
        for number in range(5):
            outside.client_kill_filter(_type="normal", skipme=True)
            client.submit(AGENT, "say", "hi", task_id=f"t{number}")
            assert is_queued_once(hand, f"t{number}")
            assert client._line.is_open, "opened behind the submission that went the other way"

    def test_scripts_that_the_server_forgot_are_loaded(self, client: SyncClient, hand: HandWorker, outside: redis.Redis) -> None:
        outside.script_flush()
        client.submit(AGENT, "say", "hi", task_id="t1")
        assert is_queued_once(hand, "t1")

    @pytest.mark.guarantee("G13")
    def test_a_key_of_another_type_is_refused_with_its_code(
        self, client: SyncClient, outside: redis.Redis, settings: Settings
    ) -> None:
        outside.set(settings.keys.events("t1"), "no stream", ex=60)
        with pytest.raises(BrokerRefused, match=r"submit: .*WRONGTYPE"):
            client.submit(AGENT, "say", "hi", task_id="t1")

    @pytest.mark.parametrize("stray", [b"!!\r\n", b":1\r\n", b"*0\r\n", b"*1\r\n:1\r\n"])
    def test_what_is_no_answer_is_heard_by_nobody(self, client: SyncClient, hand: HandWorker, stray: bytes) -> None:
        client._line._free[0].parser.feed(stray)
        client.submit(AGENT, "say", "hi", task_id="t1")
        assert is_queued_once(hand, "t1")
        assert client._line.is_open, "another one"

    def test_an_answer_in_small_pieces_is_not_waited_for_for_ever(
        self, settings: Settings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(direct_line, "_ANSWER_S", 0.1)
        here, there = socket.socketpair()
        here.settimeout(BOUND_S)
        line = direct_line.DirectLine(settings)
        line._put_back(direct_line._Line(Wire(here), new_parser()))
        is_over = threading.Event()

        def trickle() -> None:
            there.sendall(b"$1000\r\n")
            while not is_over.wait(0.01):
                there.sendall(b"x")

        thread = threading.Thread(target=trickle)
        thread.start()
        try:
            assert line.run(AnyBatch(), Call((), (), ())) is None  # type: ignore[arg-type]
        finally:
            is_over.set()
            thread.join(BOUND_S)
            there.close()
        assert not line.is_open
        assert here.fileno() == -1

    def test_an_interrupt_in_the_middle_holds_up_nobody(
        self, client: SyncClient, hand: HandWorker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupted(*_: object) -> bytes:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(ScriptBatch, "command", interrupted)
            with pytest.raises(KeyboardInterrupt):
                client.submit(AGENT, "say", "hi", task_id="t1")
        client.submit(AGENT, "say", "hi", task_id="t1")
        assert is_queued_once(hand, "t1")
        assert client._line._take() is not None, "as if a thread never came back with it"
        client.submit(AGENT, "say", "hi", task_id="t2")
        assert is_queued_once(hand, "t2")

    def test_a_closed_client_says_so(self, settings: Settings, hand: HandWorker) -> None:
        with SyncClient(settings=settings) as client:
            client.submit(AGENT, "say", "hi")
            client.submit(AGENT, "say", "hi")
        assert repr(client._line) == "<DirectLine closed>"
        client._line.open()
        assert not client._line.is_open, "what a thread does that submits while another closes"
        with pytest.raises(BrokerUnavailable):
            client.submit(AGENT, "say", "hi")

    def test_no_answer_is_waited_for_no_longer_than_answers_may_take(self, own_server: RedisServer) -> None:
        settings = make_settings(own_server.url, patience_s=0.5, answer_timeout_s=0.5)
        with own_server.client() as outside, SyncClient(settings=settings) as client:
            HandWorker(outside, settings).announce()
            for task_id in ("first", "second"):
                client.submit(AGENT, "say", "hi", task_id=task_id)
            assert client._line.is_open
            own_server.pause()
            try:
                with pytest.raises(BrokerUnavailable):
                    client.submit(AGENT, "say", "hi", task_id="t1")
                assert repr(client._line) == "<DirectLine closed>"
            finally:
                own_server.resume()
            client.submit(AGENT, "say", "hi", task_id="t1")
            hand = HandWorker(outside, settings)
            assert is_queued_once(hand, "t1")
            hand.settle_all()
