"""Agent cards read back what they write; another version's fields do no harm."""

from __future__ import annotations

import pytest

from skillstream_schemas.card import AgentCard, SkillCard
from skillstream_schemas.errors import MalformedEntry
from skillstream_schemas.request import OnRetry

CARD = AgentCard(
    name="researcher",
    description="Researches a topic",
    queue="arq:queue:{researcher}",
    skills=(SkillCard(name="research", price_micros=50_000, timeout_s=600, on_retry=OnRetry.RESUME, tags=("search",)),),
    workers={"host:1": 1_700_000_000_000},
)


def test_a_card_reads_back_what_it_writes() -> None:
    assert AgentCard.from_json(CARD.model_dump_json()) == CARD


def test_fields_of_a_newer_version_are_ignored() -> None:
    assert AgentCard.from_json('{"name":"a","queue":"q","skills":[{"name":"s","new":1}],"newer":true}').skill("s") == SkillCard(
        name="s"
    )


def test_a_skill_is_found_by_name() -> None:
    skill = CARD.skill("research")
    assert skill is not None
    assert skill.price_micros == 50_000
    assert CARD.skill("other") is None


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "{", '{"name":"a"}', b"\xff", '{"name":"a","queue":"q","skills":[{}]}', "[" * 5000]
)
def test_what_is_no_card_is_malformed(text: str | bytes) -> None:
    with pytest.raises(MalformedEntry, match="agent card"):
        AgentCard.from_json(text)
