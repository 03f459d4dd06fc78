"""A task's text, chunk by chunk or all at once, through attempts that start again or go on."""

from __future__ import annotations

from contextlib import aclosing

import pytest

from skillstream import Client
from skillstream_schemas.errors import (
    TextReset,
)

from .bounds import collected, soon
from .hand_worker import HandWorker

pytestmark = pytest.mark.fake


class TestText:
    @pytest.mark.guarantee("G5")
    async def test_chunks_come_as_text(self, client: Client, hand: HandWorker) -> None:
        hand.submit("t1")
        hand.open("t1")
        hand.say("t1", "Zürich ", "😀")
        hand.add("t1", "1-4", type="status", state="working", text="no output")
        hand.add("t1", "1-5", type="chunk", mode="snapshot", data="1")
        hand.finish("t1", "1-6", "Zürich 😀", chunks=3)
        assert await collected(client.task("t1").text()) == ["Zürich ", "😀"]

    @pytest.mark.guarantee("G5")
    async def test_text_that_was_never_streamed_is_delivered_at_the_end(self, client: Client, hand: HandWorker) -> None:
        hand.submit("t1")
        hand.open("t1")
        hand.finish("t1", "1-2", "all at once", chunks=0)
        assert await collected(client.task("t1").text()) == ["all at once"]

    async def test_a_task_without_text_has_none(self, client: Client, hand: HandWorker) -> None:
        hand.submit("t1")
        hand.run("t1")
        assert await collected(client.task("t1").text()) == []

    @pytest.mark.guarantee("G5")
    async def test_a_failed_task_ends_with_what_it_said(self, client: Client, hand: HandWorker) -> None:
        hand.submit("t1")
        hand.open("t1")
        hand.say("t1", "half")
        hand.finish("t1", "1-3", "half", chunks=1, state="failed", error="skill_error")
        assert await collected(client.task("t1").text()) == ["half"]

    @pytest.mark.guarantee("G5")
    async def test_a_restart_takes_text_back_and_reading_goes_on(self, client: Client, hand: HandWorker) -> None:
        hand.submit("t1")
        hand.open("t1")
        hand.say("t1", "first ", "try")
        pieces: list[str] = []
        async with aclosing(client.task("t1").text()) as texts:
            pieces += [await soon(anext(texts)), await soon(anext(texts))]
            hand.open("t1", 2)
            hand.say("t1", "second", attempt=2)
            with pytest.raises(TextReset) as raised:
                await soon(anext(texts))
        assert (raised.value.attempt, raised.value.keep, raised.value.after) == (2, 0, "2-1")
        hand.finish("t1", "2-3", "second", chunks=1)
        text = "".join(pieces)[: raised.value.keep]
        assert text + "".join(await collected(client.task("t1").text(after=raised.value.after))) == "second"

    @pytest.mark.guarantee("G5")
    async def test_a_resumed_attempt_keeps_code_points(self, client: Client, hand: HandWorker) -> None:
        hand.submit("t1")
        hand.open("t1")
        hand.say("t1", "Zürich 😀 and more")
        hand.open("t1", 2, resume_from=8)
        hand.say("t1", "!", attempt=2)
        hand.finish("t1", "2-3", "Zürich 😀!", chunks=1)
        texts = client.task("t1").text()
        pieces = [await soon(anext(texts))]
        with pytest.raises(TextReset) as raised:
            await soon(anext(texts))
        text = "".join(pieces)[: raised.value.keep]
        assert text == "Zürich 😀"
        assert text + "".join(await collected(client.task("t1").text(after=raised.value.after))) == "Zürich 😀!"

    @pytest.mark.guarantee("G5")
    async def test_an_attempt_that_goes_on_behind_the_whole_text_takes_nothing_back(
        self, client: Client, hand: HandWorker
    ) -> None:
        hand.submit("t1")
        hand.open("t1")
        hand.say("t1", "one ")
        hand.open("t1", 2, resume_from=4)
        hand.say("t1", "two", attempt=2)
        hand.finish("t1", "2-3", "one two", chunks=1)
        assert await collected(client.task("t1").text()) == ["one ", "two"]

    @pytest.mark.guarantee("G5")
    @pytest.mark.parametrize("after", ["0", "1-1", "1-2", "1-3", "2-1", "2-2"])
    async def test_a_task_closed_from_outside_repeats_no_text_from_any_cursor(
        self, client: Client, hand: HandWorker, after: str
    ) -> None:
        hand.submit("t1")
        hand.open("t1")
        hand.say("t1", "abc", "def")
        hand.open("t1", 2, resume_from=6, worker="reaper")
        hand.finish("t1", "2-2", "abcdef", chunks=0, state="failed", error="expired")
        had = {"0": "", "1-1": "", "1-2": "abc", "1-3": "abcdef", "2-1": "abcdef", "2-2": "abcdef"}[after]
        assert had + "".join(await collected(client.task("t1").text(after=after))) == "abcdef"

    @pytest.mark.guarantee("G5")
    async def test_a_reader_that_came_back_in_the_middle_hears_of_a_restart(self, client: Client, hand: HandWorker) -> None:
        hand.submit("t1")
        hand.open("t1")
        hand.say("t1", "abc")
        hand.open("t1", 2)
        hand.finish("t1", "2-2", "", chunks=0)
        with pytest.raises(TextReset) as raised:
            await collected(client.task("t1").text(after="1-2"))
        assert raised.value.keep == 0

    async def test_leaving_early_leaves_nothing_behind(self, client: Client, hand: HandWorker) -> None:
        hand.submit("t1")
        hand.run("t1", "a", "b")
        async with aclosing(client.task("t1").text()) as texts:
            assert await soon(anext(texts)) == "a"
        assert "feeds=0" in repr(client._hub)
