"""The streaming skills of the Society AI SDK's documentation, in our words: only the import differs from an agent there.

Offered at a hub with `skillstream connect hub wss://… --agent streamer/analyze`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator

from skillstream_worker import Response, SocietyAgent, TaskContext

agent = SocietyAgent(name="streamer", description="Says what it finds in a text, piece by piece")


async def insights(text: str) -> AsyncIterator[str]:
    """What can be said of a text by counting."""
    words = re.findall(r"\w+", text.lower())
    yield f"{len(words)} words, {len(set(words))} of them different"
    yield f"{len(re.findall(r'[.!?]+', text))} sentences"
    if words:
        word, count = Counter(words).most_common(1)[0]
        yield f"most used: {word} ({count})"


@agent.skill(name="analyze", description="Streams what it finds")
async def analyze(message: str, context: TaskContext) -> AsyncGenerator[str, None]:
    """Strings alone: each is shown at once, and all together are the answer."""
    yield "Reading...\n"
    async for insight in insights(message):
        yield f"- {insight}\n"
    yield "\nThat is all."


@agent.skill(name="process", description="Shows progress that is no part of the answer")
async def process(message: str, context: TaskContext) -> AsyncGenerator[str | Response, None]:
    """Responses with the status working are shown, not kept."""
    found: list[str] = []
    async for insight in insights(message):
        yield Response(text=f"Step {len(found) + 1}...", status="working")
        found.append(insight)
    yield "Results:\n" + "\n".join(found)


@agent.skill(name="draft", description="Drafts a title and asks back")
async def draft(message: str, context: TaskContext) -> AsyncGenerator[str | Response, None]:
    """A last Response sets the final status and metadata; the accumulated text stays."""
    yield "A draft:\n\n"
    yield " ".join(message.split()[:6]).title()
    yield "\n\nShall I keep it?"
    yield Response(status="input-required", metadata={"draft_version": 1})


@agent.skill(name="research", description="All three kinds of yield", price_usd=0.05)
async def research(message: str, context: TaskContext) -> AsyncGenerator[str | Response, None]:
    """Progress, text, and metadata at the end."""
    yield Response(text="Looking for paragraphs...", status="working")
    paragraphs = [part.strip() for part in message.split("\n\n") if part.strip()]
    yield f"# {len(paragraphs)} paragraphs\n\n"
    for number, paragraph in enumerate(paragraphs, 1):
        yield Response(text=f"Reading {number} of {len(paragraphs)}...", status="working")
        yield f"## {paragraph.splitlines()[0][:40]}\n{len(paragraph.split())} words\n\n"
    yield Response(metadata={"paragraphs": len(paragraphs)})


@agent.skill(name="answer", description="One answer, not streamed")
async def answer(message: str, context: TaskContext) -> str:
    """A plain return: nothing is shown before the end."""
    return f"{len(message)} characters."
