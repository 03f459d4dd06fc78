"""An agent that finds, sums up and outlines what stands in the files and Python packages of its machine.

It reads whatever its process may read, so give it a user of its own. No model, no network: text in, Markdown out.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

from skillstream_worker import Agent, Response, TaskContext

from .ranking import Index, Match, opening_of, summarise, terms_of, wanted_terms
from .shelf import SUFFIXES, Listing, UnreadableFileError, find_place, list_files, parse_wish, prose_of, read_passages, read_text

SHOWN = 8
"""Matches that a report cites."""
POINTS = 5
_ADDED_POINTS = 3
_REPORTS = 8
_PATH_CHARS = 1000
_DRAFT = re.compile(r"# Draft (\d+): (.+)")
_POINT = re.compile(r"(?m)^\d+\. \*\*(.+?)\*\* \(`(.+?)`\): (.+)$")
_ACCEPTED = re.compile(r"\W*(accept(ed)?|yes|ok(ay)?|good|fine)\b\W*", re.IGNORECASE)
_WITHOUT = re.compile(r"\b(?:without|drop|leave out|remove)\s+([^.,;]+?)(?=\s+and\s+(?:add|with)\b|[.,;]|\s*$)", re.IGNORECASE)
_REQUEST_WORDS = re.compile(r"\b(revise|add|also|please|include|more|about)\b", re.IGNORECASE)

agent = Agent(name="librarian", description="Finds, sums up and outlines what stands in files and Python packages")


@dataclass(frozen=True, slots=True)
class Point:
    """A point of an outline: what it is about, where that stands, and its first sentence."""

    title: str
    source: str
    sentence: str


class Reading:
    """Responsible for reading a place into an index, off the event loop, with reports of progress on the way.

    `files` counts those that were read.
    """

    def __init__(self, listing: Listing) -> None:
        self.listing = listing
        self.index = Index()
        self.files = 0

    @classmethod
    async def of(cls, place: str) -> Reading:
        """Lists what is to be read; raises ValueError where the place does not exist or holds nothing to read."""
        listing = await asyncio.to_thread(lambda: list_files(find_place(place)))
        if not listing.files:
            raise ValueError(f"There is no file to read in {place!r}: none ends in {', '.join(SUFFIXES)}.")
        return cls(listing)

    async def run(self) -> AsyncGenerator[Response, None]:
        """Reads all files; yields some reports of progress."""
        total = len(self.listing.files)
        step = math.ceil(total / _REPORTS)
        for done in range(0, total, step):
            batch = self.listing.files[done : done + step]
            yield Response(text=f"Reading {done + len(batch)} of {total} files", status="working", progress=0.9 * done / total)
            await asyncio.to_thread(self._read, batch)

    def _read(self, batch: Sequence[Path]) -> None:
        for path in batch:
            try:
                self.index.add(read_passages(path, self.listing.root))
            except UnreadableFileError as error:
                self.listing.skipped[str(error)] += 1
            else:
                self.files += 1


@agent.skill(
    name="research",
    description="Finds what matches in a folder or an installed package and reports it with excerpts, file and line",
    price_usd="0.05",
    tags=["search", "code"],
    examples=["how cancellation and timeouts work in asyncio", "retention settings in ./docs"],
    timeout=300,
)
async def research(message: str, context: TaskContext) -> AsyncGenerator[str | Response, None]:
    """Takes `<what to look for> in <folder or package>`; streams a Markdown report."""
    wish = parse_wish(message)
    wanted_terms(wish.wanted)
    reading = await Reading.of(wish.place)
    yield f"# {wish.wanted}\n\n"
    async with aclosing(reading.run()) as reports:
        async for report in reports:
            yield report
    yield Response(text=f"Ranking {len(reading.index)} passages", status="working", progress=0.95)
    matches = await asyncio.to_thread(reading.index.search, wish.wanted)
    context.log.info("%d of %d passages match", len(matches), len(reading.index))
    yield f"{_read_what(reading, wish.place)}\n\n"
    if matches:
        for number, match in enumerate(matches[:SHOWN], 1):
            yield _excerpt(number, match)
        yield _table(matches[:SHOWN], len(matches))
    else:
        yield "Nothing matches.\n"
    yield Response(metadata={"files": reading.files, "matches": len(matches), "skipped": dict(reading.listing.skipped)})


@agent.skill(
    name="summarize",
    description="Picks the sentences that say most from a text, or from a file given by its path",
    price_usd="0.01",
    tags=["summary"],
    examples=["README.md"],
    timeout=60,
)
async def summarize(message: str, context: TaskContext) -> str:
    """Takes a text or the path of one file; returns its most telling sentences in their order."""
    return await asyncio.to_thread(_summary, message)


@agent.skill(
    name="draft",
    description="Drafts an outline on a topic from a folder or package, then revises it with your answer",
    price_usd="0.02",
    tags=["outline", "conversation"],
    examples=["parsing of headers in email"],
    timeout=300,
)
async def draft(message: str, context: TaskContext) -> AsyncGenerator[str | Response, None]:
    """Takes `<topic> in <folder or package>` and asks back; the next turn is `accept`, `without …` or what to add."""
    turns = context.conversation_history
    before = turns[-1] if turns else None
    heading = _DRAFT.match(before["text"]) if before is not None and before["role"] == "agent" else None
    if before is not None and heading and heading[1] == "1":
        points = [Point(*found) for found in _POINT.findall(before["text"])]
        steps = _second_draft(heading[2], points, message)
    else:
        steps = _first_draft(message)
    async with aclosing(steps):
        async for step in steps:
            yield step


async def _first_draft(message: str) -> AsyncGenerator[str | Response, None]:
    wish = parse_wish(message)
    reading = await Reading.of(wish.place)
    async with aclosing(reading.run()) as reports:
        async for report in reports:
            yield report
    points = await asyncio.to_thread(_points, reading.index, wish.wanted, POINTS)
    if not points:
        raise ValueError(f"Nothing on {wish.wanted!r} stands in {wish.place!r}.")
    yield f"# Draft 1: {' '.join(message.split())}\n\n"
    for number, point in enumerate(points, 1):
        yield f"{number}. **{point.title}** (`{point.source}`): {point.sentence}\n"
    yield "\nAnswer `accept`, `without <what to leave out>`, or name what to add.\n"
    yield Response(status="input-required", metadata={"draft_version": 1, "points": len(points)})


async def _second_draft(request: str, points: Sequence[Point], answer: str) -> AsyncGenerator[str | Response, None]:
    if not _ACCEPTED.fullmatch(answer):
        unwanted = {term for clause in _WITHOUT.findall(answer) for term in terms_of(clause)}
        kept = [point for point in points if unwanted.isdisjoint(terms_of(f"{point.title} {point.sentence}"))]
        yield Response(text=f"Leaving out {len(points) - len(kept)} of {len(points)} points", status="working", progress=0)
        points = kept
        wanted = _REQUEST_WORDS.sub(" ", _WITHOUT.sub(" ", answer))
        if terms_of(wanted):
            reading = await Reading.of(parse_wish(request).place)
            async with aclosing(reading.run()) as reports:
                async for report in reports:
                    yield report
            found = await asyncio.to_thread(_points, reading.index, wanted, POINTS + _ADDED_POINTS)
            points = [*points, *[point for point in found if point not in points][:_ADDED_POINTS]]
    yield f"# Draft 2: {request}\n\n"
    for number, point in enumerate(points, 1):
        yield f"## {number}. {point.title}\n\n{point.sentence}\n\nSource: `{point.source}`\n\n"
    yield Response(metadata={"draft_version": 2, "points": len(points)})


def _points(index: Index, wanted: str, count: int) -> list[Point]:
    found: dict[str, Point] = {}
    for match in index.search(wanted):
        if len(found) < count and (title := match.passage.title.replace("*", "").strip()):
            found.setdefault(title, Point(title, f"{match.passage.source}:{match.passage.line}", opening_of(match.passage)))
    return list(found.values())


def _summary(message: str) -> str:
    text = message.strip()
    if "\n" not in text and len(text) < _PATH_CHARS and Path(text).suffix in SUFFIXES:
        path = Path(text).expanduser()
        if path.exists() or " " not in text:
            try:
                return summarise(prose_of(read_text(path), path.suffix))
            except UnreadableFileError as error:
                raise ValueError(f"The file {text!r} cannot be summed up: {error}.") from None
    return summarise(text)


def _read_what(reading: Reading, place: str) -> str:
    files = reading.files
    parts = [f"Read {files} file{'' if files == 1 else 's'} of `{place}`"]
    parts += [f"{count} skipped: {reason}" for reason, count in sorted(reading.listing.skipped.items())]
    if reading.listing.left_out:
        parts.append(f"{reading.listing.left_out} left out: beyond the first {len(reading.listing.files)}")
    return "; ".join(parts) + "."


def _excerpt(number: int, match: Match) -> str:
    text = "\n".join(match.excerpt)
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    title = match.passage.title or match.passage.source
    return (
        f"## {number}. {title}\n\n`{match.passage.source}:{match.line}`\n\n{fence}{match.passage.language}\n{text}\n{fence}\n\n"
    )


def _table(shown: Sequence[Match], found: int) -> str:
    rows = [
        f"| {number} | `{match.passage.source}:{match.line}` | {match.passage.title.replace('|', '/')} "
        f"| {', '.join(match.words)} | {match.score:.2f} |"
        for number, match in enumerate(shown, 1)
    ]
    head = ["## Summary", "", f"The best {len(shown)} of {found} matching passages.", ""]
    return "\n".join([*head, "| | where | what | words | score |", "|---|---|---|---|---|", *rows, ""])
