"""Registering skills: what is detected, announced and refused, before anything runs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from decimal import Decimal
from typing import Any

import pytest

from skillstream_schemas.errors import InvalidName, InvalidRequest
from skillstream_schemas.money import Price
from skillstream_schemas.request import OnRetry
from skillstream_worker import Agent, Boundary, Chunking, Response, Retry, SocietyAgent, SyncTaskContext, TaskContext


async def streams(message: str, context: TaskContext) -> AsyncGenerator[str, None]:
    yield message


async def returns(message: str, context: TaskContext) -> str:
    return message


@pytest.fixture
def agent() -> Agent:
    return Agent(name="researcher", description="Researches a topic")


def test_a_skill_with_all_that_may_be_said(agent: Agent) -> None:
    registered = agent.skill(
        name="research", description="Research with streaming updates", price_usd="0.05", tags=["search"],
        examples=["quantum error correction"], streaming=True, timeout=600, max_attempts=5, retry_on=(ConnectionError,),
        on_retry="resume", chunking=Chunking(max_delay=0.1, boundary="sentence"),
    )(streams)  # fmt: skip
    assert registered is streams
    skill = agent.skills["research"]
    assert (skill.retry_on, skill.chunking.boundary) == ((ConnectionError,), Boundary.SENTENCE)
    assert agent.card.model_dump() == {
        "name": "researcher", "description": "Researches a topic", "queue": "arq:queue:{researcher}", "workers": {}, "seen": {},
        "skills": (
            {
                "name": "research", "description": "Research with streaming updates", "price_micros": 50_000,
                "tags": ("search",), "examples": ("quantum error correction",), "streaming": True, "timeout_s": 600.0,
                "max_attempts": 5, "on_retry": OnRetry.RESUME,
            },
        ),
    }  # fmt: skip


def test_a_skill_with_a_name_alone(agent: Agent) -> None:
    agent.skill("research")(streams)
    card = agent.card.skill("research")
    assert card is not None
    assert (card.price_micros, card.timeout_s, card.max_attempts, card.on_retry) == (0, None, 3, OnRetry.RESTART)


@pytest.mark.parametrize(
    ("function", "said", "streaming"),
    [(streams, None, True), (streams, True, True), (streams, False, True), (returns, None, False), (returns, False, False)],
)
def test_streaming_is_detected(agent: Agent, function: Any, said: bool | None, streaming: bool) -> None:
    agent.skill("s", streaming=said)(function)
    card = agent.card.skill("s")
    assert card is not None
    assert card.streaming is streaming


def _plain(message: str, context: SyncTaskContext) -> str:
    return message


def _generator(message: str, context: SyncTaskContext) -> Iterator[str]:
    yield message


@pytest.mark.parametrize(("function", "streams"), [(_plain, False), (_generator, True)])
def test_a_plain_function_may_be_a_skill(agent: Agent, function: Any, streams: bool) -> None:
    assert agent.skill("s")(function) is function
    assert agent.skills["s"].streams is streams


@pytest.mark.parametrize(("function", "said"), [(_plain, True), (returns, True), (5, None), (Response, None)])
def test_what_is_no_skill_function_is_refused(agent: Agent, function: Any, said: bool | None) -> None:
    with pytest.raises(TypeError, match=r"neither a function|does not yield"):
        agent.skill("s", streaming=said)(function)
    assert agent.skills == {}


@pytest.mark.parametrize("price", [0.05, "0.05", Decimal("0.05"), "5e-2"])
def test_a_price_may_be_written_in_several_forms(agent: Agent, price: Price) -> None:
    agent.skill("s", price_usd=price)(returns)
    assert agent.skills["s"].price_micros == 50_000


@pytest.mark.parametrize(("price", "micros"), [(2, 2_000_000), (0, 0), (0.1, 100_000), ("0.000001", 1), (1.1, 1_100_000)])
def test_a_price_is_exact(agent: Agent, price: Price, micros: int) -> None:
    agent.skill("s", price_usd=price)(returns)
    assert agent.skills["s"].price_micros == micros


@pytest.mark.parametrize("price", [-1, "free", "0.0000001", float("nan"), float("inf"), 10**12, "1e999999", ""])
def test_a_price_that_cannot_be_charged_is_refused(agent: Agent, price: Price) -> None:
    with pytest.raises(InvalidRequest):
        agent.skill("s", price_usd=price)(returns)
    assert agent.skills == {}


@pytest.mark.parametrize(
    "options",
    [
        {"max_attempts": 0}, {"max_attempts": 1001}, {"timeout": 0}, {"timeout": -1}, {"timeout": float("nan")},
        {"on_retry": "never"}, {"name": ""}, {"name": "x" * 257},
    ],
)  # fmt: skip
def test_options_out_of_range_are_refused(agent: Agent, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        agent.skill(**({"name": "s"} | options))(returns)
    assert agent.skills == {}


@pytest.mark.parametrize(
    ("argument", "wrong"),
    [
        ("name", 5), ("description", None), ("tags", "search"), ("tags", [5]), ("examples", 5), ("timeout", "10"),
        ("max_attempts", "3"), ("max_attempts", 1.5), ("retry_on", ConnectionError), ("retry_on", ("ConnectionError",)),
        ("retry_on", "x"), ("chunking", "word"),
    ],
)  # fmt: skip
def test_an_argument_of_another_kind_is_refused_by_its_name(agent: Agent, argument: str, wrong: Any) -> None:
    name = str(wrong) if argument == "name" else "s"
    with pytest.raises(TypeError, match=f"^skill '{name}' of agent 'researcher': {argument} "):
        agent.skill(**{"name": "s", argument: wrong})(returns)
    assert agent.skills == {}


@pytest.mark.parametrize("options", [{"max_attempts": 0}, {"timeout": 0}, {"on_retry": "never"}, {"price_usd": "free"}])
def test_a_refusal_says_whose_argument_it_is(agent: Agent, options: dict[str, Any]) -> None:
    with pytest.raises((ValueError, InvalidRequest), match=f"skill 's' of agent 'researcher': {next(iter(options))}"):
        agent.skill("s", **options)


def test_an_agent_name_is_text() -> None:
    with pytest.raises(TypeError, match="the agent name 5 is no text"):
        Agent(5)  # type: ignore[arg-type]


def test_a_name_is_registered_once(agent: Agent) -> None:
    agent.skill("s")(returns)
    with pytest.raises(ValueError, match="has a skill 's' already"):
        agent.skill("s")(streams)
    assert agent.skills["s"].function is returns


@pytest.mark.parametrize("name", ["", "a b", "a{b}", "ä", "x" * 129, "a:b"])
def test_an_agent_name_that_keys_do_not_allow_is_refused(name: str) -> None:
    with pytest.raises(InvalidName):
        Agent(name)


def test_the_alias_of_the_seed() -> None:
    agent = SocietyAgent(name="streamer", description="Streaming demo")
    assert isinstance(agent, Agent)
    assert agent.queue == "arq:queue:{streamer}"


@pytest.mark.parametrize("fields", [{"max_delay": -1}, {"max_delay": 61}, {"max_chars": -1}, {"boundary": "line"}])
def test_chunking_out_of_range_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        Chunking(**fields)


@pytest.mark.parametrize("delay", [-1, 8 * 86_400, float("nan")])
def test_a_retry_delay_out_of_range_is_refused(delay: float) -> None:
    with pytest.raises(ValueError, match="between 0 and a week"):
        Retry(delay)


@pytest.mark.parametrize("fields", [{"status": "submitted"}, {"status": "finished"}, {"progress": -0.1}, {"progress": 1.1}])
def test_a_response_out_of_range_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        Response(**fields)


def test_an_agent_and_its_parts_can_be_printed(agent: Agent) -> None:
    assert repr(agent) == "<Agent researcher skills=none>"
    agent.skill("research")(streams)
    agent.skill("count")(returns)
    assert repr(agent) == "<Agent researcher skills=research, count>"
