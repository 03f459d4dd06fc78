"""Submits tasks to the librarian from a process of its own and prints their ids, one a line.

`python -m tests.acceptance.submit_tasks REDIS_URL COUNT FOLDER`: two of five search FOLDER, two sum up, one drafts
and needs input; payers and contexts vary; each tenth is submitted twice under its id.
"""

from __future__ import annotations

import asyncio
import sys

from skillstream import Client

_TEXT = "Streams carry what skills say. A stream has one end. Whoever follows a stream sees each event once. " * 3


def _request(number: int, folder: str) -> tuple[str, str]:
    match number % 5:
        case 0 | 1:
            return "research", f"stream number {number % 17} in {folder}"
        case 2 | 3:
            return "summarize", f"{number}. {_TEXT}"
        case _:
            return "draft", f"streams in {folder}"


async def main(url: str, count: int, folder: str) -> None:
    """Submits and prints."""
    async with Client(url) as client:

        async def submit(number: int) -> str:
            skill, message = _request(number, folder)
            payer = None if number % 7 == 0 else f"payer-{number % 3}"
            context_id = None if number % 4 == 0 else f"context-{number}"
            task = await client.submit("librarian", skill, message, payer=payer, context_id=context_id)
            if number % 10 == 0:
                again = await client.submit("librarian", skill, message, payer=payer, context_id=context_id, task_id=task.id)
                assert again.id == task.id
            return task.id

        for task_id in await asyncio.gather(*(submit(number) for number in range(count))):
            print(task_id)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
