"""The librarian's skills, called as a worker calls them, on folders of the test and on packages of Python."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from examples import librarian, shelf
from examples.librarian import agent, draft, research, summarize
from skillstream import Client
from skillstream.clock import Clock
from skillstream_schemas.request import HistoryMessage, TaskRequest
from skillstream_schemas.settings import Settings
from skillstream_worker import Response, TaskContext
from skillstream_worker.broker import Lease, WorkerBroker
from skillstream_worker.chunking import Chunking
from skillstream_worker.publication import Publication


def context(skill: str, message: str, *history: HistoryMessage) -> TaskContext:
    """A task's context that is connected to nothing: the librarian reports by what it yields."""
    settings = Settings()
    broker = WorkerBroker(settings, "w1")
    lease = Lease("librarian", "t1", "w1", 1)
    publication = Publication(broker, lease, 1, chunking=Chunking(), clock=Clock(), on_loss=lambda loss: None)
    return TaskContext(
        task_id="t1", attempt=1, request=TaskRequest(agent="librarian", skill=skill, message=message), history=list(history),
        partial_text="", publication=publication, client=Client(settings=settings, broker=broker),
        log=logging.LoggerAdapter(logging.getLogger("librarian"), {}),
    )  # fmt: skip


class Run:
    """What a streaming skill yielded: its text, its reports of progress, its end."""

    def __init__(self) -> None:
        self.text = ""
        self.reports: list[Response] = []
        self.end = Response()

    @classmethod
    async def of(cls, pieces: AsyncGenerator[object, None]) -> Run:
        run = cls()
        async for piece in pieces:
            if isinstance(piece, str):
                run.text += piece
                continue
            assert isinstance(piece, Response)
            if piece.status == "working":
                run.reports.append(piece)
            else:
                run.end = piece
        return run


async def run_research(message: str) -> Run:
    return await Run.of(research(message, context("research", message)))


async def run_draft(message: str, *history: HistoryMessage) -> Run:
    return await Run.of(draft(message, context("draft", message, *history)))


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    root = tmp_path / "notes"
    root.mkdir()
    (root / "weather.md").write_text("# Rain\nRain falls in spring.\n\n# Wind\nWind moves the rain | and more.\n```\ncode\n```\n")
    (root / "tools.py").write_text('def measure():\n    """Measures the rain in millimetres."""\n    return 1\n')
    (root / "latin.txt").write_bytes("Regen f\xfcr alle".encode("latin-1"))
    return root


def test_the_card_says_what_the_agent_offers() -> None:
    card = agent.card
    assert card.name == "librarian"
    assert {skill.name: (skill.price_micros, skill.streaming) for skill in card.skills} == {
        "research": (50_000, True),
        "summarize": (10_000, False),
        "draft": (20_000, True),
    }


async def test_research_reports_what_it_found_and_where(corpus: Path) -> None:
    run = await run_research(f"measure rain in {corpus}")
    assert run.text.startswith(f"# measure rain\n\nRead 2 files of `{corpus}`; 1 skipped: not UTF-8.\n\n## 1. measure\n\n")
    assert "`notes/tools.py:1`\n\n```python\ndef measure():\n" in run.text
    assert "| 1 | `notes/tools.py:1` | measure | measure, rain |" in run.text
    assert "The best 3 of 3 matching passages." in run.text
    assert run.end.metadata == {"files": 2, "matches": 3, "skipped": {"not UTF-8": 1}}
    assert run.end.status == "completed"


async def test_excerpts_hold_code_fences_without_ending_early(corpus: Path) -> None:
    run = await run_research(f"wind in {corpus}")
    assert "````markdown\n# Wind\nWind moves the rain | and more.\n```\ncode\n```\n````\n" in run.text


async def test_research_on_a_package_cites_lines_that_are_there() -> None:
    run = await run_research("parse a header value in email")
    assert run.end.metadata is not None
    assert run.end.metadata["files"] > 15
    root = shelf.find_place("email").parent
    cited = re.findall(r"(?m)^`(\S+):(\d+)`\n\n```\w+\n(.*)$", run.text)
    assert len(cited) == librarian.SHOWN
    for source, line, text in cited:
        assert (root / source).read_text().split("\n")[int(line) - 1].rstrip()[:160] == text


async def test_progress_only_grows_and_stays_below_the_end() -> None:
    run = await run_research("loop in asyncio")
    shown = [report.progress for report in run.reports]
    assert len(shown) > 5
    assert all(isinstance(value, float) and 0 <= value < 1 for value in shown)
    assert shown == sorted(shown, key=lambda value: value or 0)
    assert re.fullmatch(r"Reading \d+ of \d+ files", run.reports[0].text)


async def test_the_event_loop_goes_on_while_files_are_read(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading waits, in its thread, for something that only a running loop can do."""
    loop = asyncio.get_running_loop()
    read = shelf.read_passages

    def wait_for_the_loop(path: Path, root: Path) -> object:
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result(timeout=10)
        return read(path, root)

    monkeypatch.setattr(librarian, "read_passages", wait_for_the_loop)
    assert (await run_research(f"rain in {corpus}")).end.metadata is not None


async def test_nothing_found_is_a_result(corpus: Path) -> None:
    run = await run_research(f"volcano in {corpus}")
    assert run.text.endswith("Nothing matches.\n")
    assert run.end.metadata == {"files": 2, "matches": 0, "skipped": {"not UTF-8": 1}}


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        ("rain", "Say what to look for and where"),
        ("rain in /no/such/folder", "There is no folder or file"),
        ("rain in no_such_package", "There is no package"),
        ("what is it in email", "no word to look for"),
    ],
)
async def test_a_request_that_cannot_be_met_says_why(message: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        await run_research(message)


async def test_a_folder_without_texts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="There is no file to read"):
        await run_research(f"rain in {tmp_path}")


async def test_summarize_takes_a_text_or_a_file(corpus: Path) -> None:
    text = "Only this once. Rain falls on hills. Rain feeds rivers below hills."
    assert await summarize(text, context("summarize", text)) == "Rain feeds rivers below hills."
    path = str(corpus / "tools.py")
    assert await summarize(path, context("summarize", path)) == "Measures the rain in millimetres."
    text = "All of it is in readme.txt"
    assert await summarize(text, context("summarize", text)) == text


@pytest.mark.parametrize(("name", "reason"), [("latin.txt", "not UTF-8"), ("absent.md", "unreadable")])
async def test_summarize_says_which_file_it_cannot_read(corpus: Path, name: str, reason: str) -> None:
    path = str(corpus / name)
    with pytest.raises(ValueError, match=f"cannot be summed up: {reason}"):
        await summarize(path, context("summarize", path))


async def first_turn(message: str) -> tuple[Run, list[HistoryMessage]]:
    run = await run_draft(message)
    return run, [HistoryMessage(role="user", text=message), HistoryMessage(role="agent", text=run.text)]


async def test_a_draft_asks_back_and_is_accepted() -> None:
    first, history = await first_turn("parsing of headers in email")
    assert first.end.status == "input-required"
    assert first.end.metadata == {"draft_version": 1, "points": librarian.POINTS}
    titles = re.findall(r"(?m)^\d\. \*\*(.+?)\*\* \(`email/\w+\.\w+:\d+`\): .+$", first.text)
    assert len(titles) == librarian.POINTS
    second = await run_draft("Accept!", *history)
    assert second.end.status == "completed"
    assert second.end.metadata == {"draft_version": 2, "points": librarian.POINTS}
    assert second.text.startswith("# Draft 2: parsing of headers in email\n\n")
    assert re.findall(r"(?m)^## \d\. (.+)$", second.text) == titles


async def test_an_answer_leaves_out_and_adds() -> None:
    _, history = await first_turn("parsing of headers in email")
    kept = await run_draft("without headers", *history)
    assert not re.search(r"(?mi)^## .*header", kept.text)
    revised = await run_draft("without headers, and add folding of long lines", *history)
    added = set(re.findall(r"(?m)^## \d\. (.+)$", revised.text)) - set(re.findall(r"(?m)^## \d\. (.+)$", kept.text))
    assert added
    assert "fold" in " ".join(added).lower()
    assert revised.end.metadata is not None
    assert revised.end.metadata["draft_version"] == 2


async def test_after_a_finished_draft_the_next_turn_starts_anew() -> None:
    message = "parsing of headers in email"
    _, history = await first_turn(message)
    done = await run_draft("ok", *history)
    history += [HistoryMessage(role="user", text="ok"), HistoryMessage(role="agent", text=done.text)]
    anew = await run_draft("queues in asyncio", *history)
    assert anew.end.status == "input-required"
    assert anew.text.startswith("# Draft 1: queues in asyncio\n\n1. ")


async def test_a_draft_on_nothing_is_refused(corpus: Path) -> None:
    with pytest.raises(ValueError, match="Nothing on 'volcano' stands in"):
        await run_draft(f"volcano in {corpus}")
