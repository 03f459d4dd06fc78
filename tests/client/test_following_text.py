"""The text of a task on the command line: a file holds it once, whatever was taken back on the way."""

from __future__ import annotations

import asyncio

import pytest

from skillstream import Client
from skillstream.cli import following
from skillstream.cli.exits import Exit
from skillstream.cli.following import Show, show

from .bounds import soon, until
from .hand_worker import HandWorker


def restarted(hand: HandWorker) -> None:
    hand.submit("t1")
    hand.open("t1")
    hand.say("t1", "one ", "two ", "thre")
    hand.open("t1", 2, resume_from=8)
    hand.say("t1", "3", attempt=2)


@pytest.mark.guarantee("G5")
@pytest.mark.parametrize(("after", "text"), [("0", "one two 3\n"), ("1-2", "two 3\n"), ("1-4", "3\n"), ("2-1", "3\n")])
async def test_a_file_holds_the_text_once(
    client: Client, hand: HandWorker, capsys: pytest.CaptureFixture[str], after: str, text: str
) -> None:
    restarted(hand)
    shown = asyncio.create_task(show(client.task("t1"), Show.TEXT, after))
    await until(lambda: "feeds=1" in repr(client._hub))
    before = capsys.readouterr()
    assert before.out == "", "it may be taken back until the final is there"
    hand.finish("t1", "2-3", "one two 3", chunks=1)
    assert await soon(shown) is Exit.OK
    said = capsys.readouterr()
    assert said.out == text
    assert ("text_reset" in before.err + said.err) == (after == "1-4")


@pytest.mark.guarantee("G5")
async def test_a_person_sees_it_as_it_comes(
    client: Client, hand: HandWorker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "is_person", lambda: True)
    restarted(hand)
    seen: list[str] = []

    def has_come() -> bool:
        seen.append(capsys.readouterr().out)
        return "".join(seen) == "one two thre3"

    shown = asyncio.create_task(show(client.task("t1"), Show.TEXT))
    await until(has_come)
    hand.finish("t1", "2-3", "one two 3", chunks=1)
    assert await soon(shown) is Exit.OK
