"""Submitting: what stands on the broker afterwards, repeats that repair, other orders that are refused."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis

from skillstream import Client, Conversation, HistoryMessage
from skillstream_schemas import keys as arq_keys
from skillstream_schemas.card import SkillCard
from skillstream_schemas.errors import (
    BrokerUnavailable,
    InvalidName,
    InvalidRequest,
    InvalidSettings,
    MessageTooLarge,
    NotReplicated,
    ShardsMismatch,
    TaskIdTaken,
    UnknownAgent,
    UnknownSkill,
)
from skillstream_schemas.request import OnRetry
from skillstream_schemas.settings import Settings
from tests.conftest import make_settings
from tests.support.redis_server import RedisServer, free_port, valkey_binary

from .bounds import soon, until
from .hand_worker import AGENT, HandWorker, on_retry_card

fake = pytest.mark.fake


def tasks(outside: redis.Redis) -> list[str]:
    """Keys of all task streams."""
    return [key for key in outside.scan_iter() if ":task:" in key]


class TestSubmit:
    @fake
    async def test_the_request_stands_on_the_stream_and_the_job_on_the_queue(
        self, client: Client, hand: HandWorker, outside: redis.Redis
    ) -> None:
        hand.announce(on_retry_card(OnRetry.RESUME))
        deadline = datetime(2031, 5, 1, tzinfo=UTC)
        task = await soon(
            client.submit(
                AGENT, "say", "Zürich", context_id="chat-9", payer="acme", metadata={"n": [1]}, data={"x": None},
                deadline=deadline, history=[HistoryMessage(role="user", text="hi")], follows="t0", sender_id="me", parent="p",
                traceparent="00-1",
            )
        )  # fmt: skip
        [(event_id, fields)] = hand.entries(task.id)
        assert event_id == "0-1"
        del fields["at"]
        assert fields == {
            "type": "status", "state": "submitted", "v": "1", "agent": AGENT, "skill": "say", "message": "Zürich",
            "max_attempts": "5", "price_micros": "50000", "on_retry": "resume", "context_id": "chat-9", "payer": "acme",
            "metadata": '{"n":[1]}', "data": '{"x":null}', "history": '[{"role":"user","text":"hi"}]', "follows": "t0",
            "deadline": str(int(deadline.timestamp() * 1000)), "sender_id": "me", "parent": "p", "traceparent": "00-1",
        }  # fmt: skip
        assert set(hand.queued()) == {arq_keys.job_id(AGENT, task.id)}
        assert hand.rings(task.id) == ["submitted"]

    @fake
    async def test_a_deadline_may_be_counted_from_now(self, client: Client, hand: HandWorker) -> None:
        before_ms = datetime.now(UTC).timestamp() * 1000
        task = await soon(client.submit(AGENT, "say", "hi", deadline=timedelta(minutes=5)))
        deadline_ms = int(hand.entries(task.id)[0][1]["deadline"])
        assert before_ms + 300_000 - 1 <= deadline_ms <= before_ms + 310_000

    @fake
    @pytest.mark.parametrize("delay", [90, 90.0, timedelta(seconds=90)])
    async def test_a_delay(self, client: Client, hand: HandWorker, delay: Any) -> None:
        await soon(client.submit(AGENT, "say", "hi", delay=delay))
        assert await client.queue_depths(AGENT) == (0, 1)

    @fake
    async def test_many_at_once(self, client: Client, hand: HandWorker) -> None:
        made = await soon(asyncio.gather(*(client.submit(AGENT, "say", str(n)) for n in range(200))))
        assert len({task.id for task in made}) == 200
        assert set(hand.queued()) == {arq_keys.job_id(AGENT, task.id) for task in made}

    @fake
    @pytest.mark.guarantee("G13")
    @pytest.mark.parametrize(
        ("options", "error"),
        [
            ({"task_id": "a b"}, InvalidName), ({"task_id": ""}, InvalidName), ({"context_id": "{x}"}, InvalidName),
            ({"message": "x" * (1024 * 1024 + 1)}, MessageTooLarge), ({"message": "é" * (512 * 1024 + 1)}, MessageTooLarge),
            ({"message": "\ud800"}, InvalidRequest), ({"metadata": {"x": float("nan")}}, InvalidRequest),
            ({"metadata": {"x": object()}}, InvalidRequest),
            ({"delay": -1}, InvalidRequest), ({"delay": float("nan")}, InvalidRequest),
            ({"delay": timedelta(days=400)}, InvalidRequest), ({"deadline": datetime(2031, 5, 1)}, InvalidRequest),
            ({"deadline": timedelta.max}, InvalidRequest), ({"payer": ""}, InvalidRequest), ({"agent": "a b"}, InvalidName),
            ({"agent": "nobody"}, UnknownAgent), ({"skill": "sing"}, UnknownSkill), ({"skill": "x" * 1000}, UnknownSkill),
        ],
    )  # fmt: skip
    async def test_bad_input_is_refused_and_leaves_nothing(
        self, client: Client, hand: HandWorker, outside: redis.Redis, options: dict[str, Any], error: type[Exception]
    ) -> None:
        with pytest.raises(error):
            await soon(client.submit(**({"agent": AGENT, "skill": "say", "message": "hi"} | options)))
        assert tasks(outside) == []
        assert hand.queued() == {}

    @fake
    async def test_errors_list_what_there_is(self, client: Client, hand: HandWorker) -> None:
        hand.announce(SkillCard(name="say"), SkillCard(name="shout"))
        hand.announce(agent="other")
        with pytest.raises(UnknownSkill, match=r"'sing'.*say, shout"):
            await soon(client.submit(AGENT, "sing", "la"))
        with pytest.raises(UnknownAgent, match=r"'nobody'.*echo, other"):
            await soon(client.submit("nobody", "sing", "la"))

    @fake
    async def test_a_skill_that_was_announced_just_now_is_found(self, client: Client, hand: HandWorker) -> None:
        await soon(client.submit(AGENT, "say", "hi"))
        hand.announce(SkillCard(name="say"), SkillCard(name="sing"))
        await soon(client.submit(AGENT, "sing", "la"))
        assert set(await client.agents()) == {AGENT}


class TestRepeats:
    @fake
    @pytest.mark.guarantee("G6")
    async def test_the_same_request_returns_the_first_task(self, client: Client, hand: HandWorker) -> None:
        first = await soon(client.submit(AGENT, "say", "hi", task_id="t1"))
        before, queued = hand.entries("t1"), hand.queued()
        again = await soon(client.submit(AGENT, "say", "hi", task_id="t1"))
        assert again.id == first.id
        assert hand.entries("t1") == before
        assert hand.queued() == queued
        assert hand.rings("t1") == ["submitted"]

    @fake
    @pytest.mark.guarantee("G6")
    async def test_another_client_with_another_card_repeats_the_same_request(
        self, client: Client, hand: HandWorker, settings: Settings
    ) -> None:
        await soon(client.submit(AGENT, "say", "hi", task_id="t1", deadline=timedelta(minutes=1)))
        before = hand.entries("t1")
        hand.announce(on_retry_card())
        async with Client(settings=settings) as other:
            await soon(other.submit(AGENT, "say", "hi", task_id="t1", deadline=timedelta(minutes=2)))
        assert hand.entries("t1") == before

    @fake
    @pytest.mark.guarantee("G6")
    async def test_a_repeat_puts_a_missing_job_on_the_queue(self, client: Client, hand: HandWorker, outside: redis.Redis) -> None:
        hand.submit("t1")  # the first client died between its two steps
        assert hand.queued() == {}
        await soon(client.submit(AGENT, "say", "hi", task_id="t1"))
        member = arq_keys.job_id(AGENT, "t1")
        assert set(hand.queued()) == {member}
        assert outside.exists(arq_keys.job(member)) == 1
        assert len(hand.entries("t1")) == 1

    @fake
    @pytest.mark.guarantee("G6")
    async def test_an_ended_task_is_not_queued_again(self, client: Client, hand: HandWorker) -> None:
        await soon(client.submit(AGENT, "say", "hi", task_id="t1"))
        hand.run("t1", "hi")
        before = hand.entries("t1")
        task = await soon(client.submit(AGENT, "say", "hi", task_id="t1"))
        assert hand.queued() == {}
        assert hand.entries("t1") == before
        assert (await soon(task.result())).text == "hi"

    @fake
    @pytest.mark.guarantee("G6")
    @pytest.mark.parametrize(
        "change", [{"message": "ho"}, {"payer": "other"}, {"metadata": {"x": 1}}, {"context_id": "c"}, {"skill": "sing"}]
    )
    async def test_another_request_under_the_same_id_is_refused(
        self, client: Client, hand: HandWorker, change: dict[str, Any]
    ) -> None:
        hand.announce(SkillCard(name="say"), SkillCard(name="sing"))
        wanted: dict[str, Any] = {"skill": "say", "message": "hi", "task_id": "t1"}
        await soon(client.submit(AGENT, **wanted))
        before, queued = hand.entries("t1"), hand.queued()
        with pytest.raises(TaskIdTaken) as raised:
            await soon(client.submit(AGENT, **(wanted | change)))
        assert raised.value.message.endswith(f"another request: other {', '.join(change)}")
        assert hand.entries("t1") == before
        assert hand.queued() == queued

    @fake
    @pytest.mark.guarantee("G6")
    async def test_a_hundred_repeats_at_once_make_one_task(self, client: Client, hand: HandWorker) -> None:
        made = await soon(asyncio.gather(*(client.submit(AGENT, "say", "hi", task_id="t1") for _ in range(100))))
        assert {task.id for task in made} == {"t1"}
        assert len(hand.entries("t1")) == 1
        assert len(hand.queued()) == 1

    @pytest.mark.guarantee("G6")
    async def test_a_submission_outlives_killed_connections(self, client: Client, hand: HandWorker, outside: redis.Redis) -> None:
        await client.agents()
        submitting = [asyncio.create_task(client.submit(AGENT, "say", str(n), task_id=f"t{n}")) for n in range(50)]
        for _ in range(5):
            await asyncio.sleep(0)
            outside.client_kill_filter(_type="normal", skipme=True)
        await soon(asyncio.gather(*submitting))
        assert set(hand.queued()) == {arq_keys.job_id(AGENT, f"t{n}") for n in range(50)}
        assert all(len(hand.entries(f"t{n}")) == 1 for n in range(50))


class TestDurable:
    async def test_several_at_once_share_one_connection(self, client: Client, hand: HandWorker, outside: redis.Redis) -> None:
        await soon(client.submit(AGENT, "say", "hi"))
        clients: Any = outside.client_list()
        made = await soon(
            asyncio.gather(*(client.submit(AGENT, "say", "hi", durable=True) for _ in range(5)), return_exceptions=True)
        )
        assert {type(answer) for answer in made} == {NotReplicated}
        now: Any = outside.client_list()
        assert len(now) == len(clients) + 1

    async def test_without_replica_it_says_so_and_the_task_is_queued_all_the_same(self, client: Client, hand: HandWorker) -> None:
        with pytest.raises(NotReplicated):
            await soon(client.submit(AGENT, "say", "hi", task_id="t1", durable=True))
        assert set(hand.queued()) == {arq_keys.job_id(AGENT, "t1")}

    async def test_with_a_replica_it_is_confirmed(self, own_server: RedisServer) -> None:
        settings = make_settings(own_server.url)
        follow = ("--replicaof", "127.0.0.1", str(own_server.port))
        with (
            RedisServer(valkey_binary(), *follow) as replica,
            own_server.client() as outside,
            replica.client() as copy,
        ):
            HandWorker(outside, settings).announce()
            outside.config_set("repl-diskless-sync-delay", "0")
            await until(lambda: "'state': 'online'" in str(outside.info("replication")), bound_s=30)
            async with Client(settings=settings) as client:
                await soon(client.submit(AGENT, "say", "hi", task_id="t1", durable=True))
            assert copy.exists(settings.keys.events("t1")) == 1
            assert copy.zcard(arq_keys.queue(AGENT)) == 1


class TestConversation:
    @fake
    async def test_each_turn_knows_the_one_before(self, client: Client, hand: HandWorker) -> None:
        talk = client.conversation(AGENT, payer="acme")
        one = await soon(talk.submit("say", "hi"))
        two = await soon(talk.submit("say", "more", metadata={"n": 1}))
        first, second = hand.entries(one.id)[0][1], hand.entries(two.id)[0][1]
        assert first["context_id"] == second["context_id"] == talk.context_id
        assert ("follows" in first, second["follows"]) == (False, one.id)
        assert (first["payer"], second["payer"]) == ("acme", "acme")
        assert talk.last_task is two

    @fake
    async def test_a_context_is_named(self, client: Client) -> None:
        assert client.conversation(AGENT, context_id="chat-9").context_id == "chat-9"
        with pytest.raises(InvalidName, match="the context id"):
            Conversation(client, AGENT, "a b", None)


class TestOpening:
    async def test_nobody_listens(self) -> None:
        with pytest.raises(BrokerUnavailable):
            await soon(Client(f"redis://127.0.0.1:{free_port()}", settings=Settings(patience_s=3600)).open())

    @fake
    async def test_the_url_wins_over_the_settings(self, settings: Settings) -> None:
        async with Client(settings.redis_url, settings=settings.changed(redis_url="redis://nowhere.invalid")) as client:
            assert await client.agents() == {}
            assert client.settings == settings

    @pytest.mark.parametrize("url", ["localhost", "", "http://localhost"])
    async def test_a_url_that_is_none(self, url: str) -> None:
        with pytest.raises(InvalidSettings, match="redis_url"):
            await soon(Client(url).open())

    @fake
    async def test_another_number_of_shards_is_refused(self, client: Client, settings: Settings) -> None:
        with pytest.raises(ShardsMismatch) as raised:
            await soon(Client(settings=settings.changed(shards=5)).open())
        assert raised.value.code == "shards_mismatch"

    @fake
    async def test_closing_twice_is_safe(self, settings: Settings, hand: HandWorker) -> None:
        client = await Client(settings=settings).open()
        await client.close()
        await client.close()
        with pytest.raises(BrokerUnavailable):
            await soon(client.submit(AGENT, "say", "hi"))
