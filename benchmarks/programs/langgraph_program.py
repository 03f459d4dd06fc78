"""A graph of one node for `langgraph dev`, which runs it in its own process and keeps its runs in memory."""

from __future__ import annotations

import asyncio
from typing import TypedDict

from langgraph.config import get_stream_writer
from langgraph.graph import END, START, StateGraph


class Telling(TypedDict, total=False):
    """The state: what to tell, and what was told."""

    count: int
    delay_s: float
    text: str


async def tell(state: Telling) -> Telling:
    """Streams the tokens."""
    write, told = get_stream_writer(), []
    for number in range(state["count"]):
        await asyncio.sleep(state["delay_s"])
        write(f"t{number} ")
        told.append(f"t{number} ")
    return {"text": "".join(told)}


graph = StateGraph(Telling).add_node("tell", tell).add_edge(START, "tell").add_edge("tell", END).compile()
