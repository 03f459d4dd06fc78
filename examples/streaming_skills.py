"""Every way of writing a skill of the Society AI SDK, with only the import changed: what is yielded, what is returned.

What would ask a model or a database here counts the words of the message instead.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator

from skillstream_worker import Response, SocietyAgent, TaskContext

agent = SocietyAgent(name="streamer", description="Counts words, and says so in every way there is")

SHELVES = {"tides": ("Moon and sea", "Harbour tables"), "rain": ("Clouds",)}


@agent.skill(name="analyze", description="Text as it comes")
async def analyze(message: str, context: TaskContext) -> AsyncGenerator[str, None]:
    """Yields strings: each is shown at once and kept."""
    yield "Counting...\n"
    async for finding in findings(message):
        yield f"* {finding}\n"
    yield "Done."


@agent.skill(name="report", description="Text in parts")
async def report(message: str, context: TaskContext) -> AsyncGenerator[str, None]:
    """Yields strings, some of which take a while."""
    yield "# Words\n\n"
    yield "## Count\n"
    yield await count(message)
    yield "\n\n## Longest\n"
    yield await longest(message)


@agent.skill(name="process", description="Steps, then a result")
async def process(message: str, context: TaskContext) -> AsyncGenerator[str | Response, None]:
    """Yields working Responses, which are shown and not kept, then the text."""
    yield Response(text="Reading", status="working")
    words = message.split()
    yield Response(text="Sorting, step 1 of 2", status="working")
    words = sorted(words)
    yield Response(text="Counting, step 2 of 2", status="working")
    total = len(words)
    yield f"{total} words, from {words[0]!r} to {words[-1]!r}"


@agent.skill(name="draft", description="A draft that asks back")
async def draft(message: str, context: TaskContext) -> AsyncGenerator[str | Response, None]:
    """Ends with a Response that sets status and metadata; its text is what was yielded."""
    yield "Proposal:\n\n"
    yield await count(message)
    yield "\n\nKeep it?"
    yield Response(status="input-required", metadata={"version": 1})


@agent.skill(name="research", description="Reports, text and metadata", price_usd=0.05)
async def research(message: str, context: TaskContext) -> AsyncGenerator[str | Response, None]:
    """All of these together."""
    yield Response(text="Looking at the shelves", status="working")
    titles = SHELVES.get(message, ())
    yield Response(text=f"{len(titles)} titles found", status="working")
    yield f"# {message}\n\n"
    for number, title in enumerate(titles, 1):
        yield Response(text=f"Reading {number} of {len(titles)}", status="working")
        yield f"## {title}\n{await count(title)}\n\n"
    yield "## Sum\n"
    yield await count(" ".join(titles))
    yield Response(metadata={"titles": len(titles), "shelves": ["tides", "rain"]})


@agent.skill(name="answer", description="One answer")
async def answer(message: str, context: TaskContext) -> str:
    """Returns: nothing is shown before the end."""
    return f"{len(message.split())} words"


@agent.skill(name="stream", description="Seen to stream, since it yields")
async def stream(message: str, context: TaskContext) -> AsyncGenerator[str, None]:
    """An async generator needs no word about it."""
    yield "first "
    yield "second"


@agent.skill(name="stream-said", description="Said to stream", streaming=True)
async def stream_said(message: str, context: TaskContext) -> AsyncGenerator[str, None]:
    """The word is allowed."""
    yield "first "
    yield "second"


async def findings(text: str) -> AsyncGenerator[str, None]:
    """Words that come more than once."""
    for word, times in Counter(text.split()).items():
        await asyncio.sleep(0)
        if times > 1:
            yield f"{word} comes {times} times"


async def count(text: str) -> str:
    """How many words there are."""
    await asyncio.sleep(0)
    return f"{len(text.split())} words"


async def longest(text: str) -> str:
    """The longest word."""
    await asyncio.sleep(0)
    return max(text.split(), key=len)
