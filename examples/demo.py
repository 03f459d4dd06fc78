"""The whole of skillstream in one run, on files that every machine with Python has: `python -m examples.demo`.

Starts a broker, a worker and a router of its own, has tasks run and streams them, and shows what stands on the
broker and in the database. Ends everything that it started; exit code 0, or 1 with a coded sentence.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, closing
from pathlib import Path

from redis.asyncio import Redis

from skillstream import ChunkEvent, Client, FinalEvent, SkillstreamError, StatusEvent, Task
from skillstream.cli.embedded import EmbeddedValkey

from .processes import process

COMMAND = (sys.executable, "-m", "skillstream")
TASK_S = 60.0
ROWS_S = 15.0
LOOK_S = 0.1
FIRST_LINES = 45
LAST_LINES = 13
SCREEN_CHARS = 110
_ESCAPES = {ord(char): f"\\{name}" for char, name in zip('"\\\n\r\t', '"\\nrt', strict=True)}


class DemoError(SkillstreamError):
    """A step of the demo did not come to its end."""

    code = "demo_failed"


async def main() -> None:
    """Runs all steps; leaving the stack ends the processes, the last started first, and removes their folder."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this_task().cancel)
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="skillstream-demo-")))
        database = folder / "demo.db"

        heading("1. A broker, a worker and a router, each a process")
        url = (await stack.enter_async_context(EmbeddedValkey(folder / "broker", port=0))).url
        print(f"broker  {url}")
        variables = {"SKILLSTREAM_REDIS_URL": url, "SKILLSTREAM_DATABASE_URL": f"sqlite:///{database}"}
        for name, arguments in (("worker", ["examples.librarian:agent"]), ("router", [])):
            await stack.enter_async_context(process(name, [*COMMAND, name, *arguments], " is ready", **variables))
        client = await stack.enter_async_context(Client(url))

        heading("2. A task, followed while it runs")
        task = await client.submit("librarian", "research", "how cancellation and timeouts work in asyncio", payer="acme")
        await follow(task)

        heading("3. Its stream, as anyone sees it on the broker")
        await show_stream(url, task.stream)

        heading("4. A draft that asks back, and the answer at once")
        conversation = client.conversation("librarian", context_id="demo-chat", payer="acme")
        await follow(await conversation.submit("draft", "parsing of headers in email"))
        print("\n> without errors, and add folding of long lines\n")
        await follow(await conversation.submit("draft", "without errors, and add folding of long lines"))

        heading("5. What the router made of it, once, in its database")
        await show_database(database)
    print("\nAll processes have ended.")


async def follow(task: Task) -> None:
    """Prints a task's progress and text as they come; raises DemoError where it failed."""
    asked = time.monotonic()
    first_ms: float | None = None
    async with asyncio.timeout(TASK_S), aclosing(task.events()) as events:
        async for event in events:
            match event:
                case StatusEvent(text=str() as text, progress=progress):
                    print(f"[{(progress or 0) * 100:3.0f} %] {text}", flush=True)
                case ChunkEvent(text=str() as text):
                    first_ms = first_ms or (time.monotonic() - asked) * 1000
                    print(text, end="", flush=True)
                case FinalEvent(state=state, metadata=metadata, error=error, reason=reason):
                    if error is not None:
                        raise DemoError(f"task {task.id} failed with {error}: {reason}")
                    print(f"\n[{state}] {metadata}")
                    end_ms = (time.monotonic() - asked) * 1000
                    print(f"[first text {first_ms or end_ms:.0f} ms, end {end_ms:.0f} ms after the submission]")


async def show_stream(url: str, key: str) -> None:
    """Prints the stream by redis-cli, or in its layout where there is none, cut to a screen."""
    print(f"$ redis-cli -u {url} XRANGE {key} - +")
    if command := shutil.which("redis-cli") or shutil.which("valkey-cli"):
        arguments = ["-u", url, "--no-raw", "XRANGE", key, "-", "+"]
        child = await asyncio.create_subprocess_exec(command, *arguments, stdout=asyncio.subprocess.PIPE)
        output, _ = await child.communicate()
        if child.returncode != 0:
            raise DemoError(f"{command} ended with {child.returncode}")
        lines = output.decode(errors="replace").splitlines()
    else:
        async with Redis.from_url(url, decode_responses=True) as redis:
            lines = list(as_redis_cli(await redis.xrange(key)))
    if len(lines) > FIRST_LINES + LAST_LINES:
        left_out = f"… {len(lines) - FIRST_LINES - LAST_LINES} lines more …"
        lines = [*lines[:FIRST_LINES], left_out, *lines[-LAST_LINES:]]
    for line in lines:
        print(line if len(line) <= SCREEN_CHARS else line[: SCREEN_CHARS - 1] + "…")


def as_redis_cli(entries: Sequence[tuple[str, Mapping[str, str]]]) -> Iterator[str]:
    """Entries in the layout in which redis-cli prints them."""
    width = len(str(len(entries)))
    for number, (entry_id, fields) in enumerate(entries, 1):
        yield f"{number:{width}}) 1) {quoted(entry_id)}"
        parts = [part for pair in fields.items() for part in pair]
        for at, part in enumerate(parts, 1):
            yield f"{'' if at > 1 else '2) ':>{width + 5}}{at:{len(str(len(parts)))}}) {quoted(part)}"


def quoted(text: str) -> str:
    """A value as redis-cli quotes it: bytes that are not plain ASCII as hexadecimal."""
    escaped = (_ESCAPES.get(byte) or (chr(byte) if 32 <= byte < 127 else f"\\x{byte:02x}") for byte in text.encode())
    return f'"{"".join(escaped)}"'


async def show_database(file: Path) -> None:
    """Waits until the router has recorded the end of the three tasks, then prints tasks, history and ledger."""
    for _ in range(round(ROWS_S / LOOK_S)):
        if len(rows(file, "SELECT id FROM tasks WHERE finished_at IS NOT NULL")) == 3:
            break
        await asyncio.sleep(LOOK_S)
    else:
        raise DemoError(f"the router had not recorded the three tasks within {ROWS_S:g} s")
    for title, query in (
        ("tasks", "SELECT id, state, skill, attempt, last_event_id, price_micros FROM tasks ORDER BY submitted_at"),
        ("history of demo-chat", "SELECT id, role, substr(text, 1, 75) FROM messages WHERE context_id = 'demo-chat' ORDER BY id"),
        ("transfers, in micro-USD", "SELECT id, kind, debit, credit, amount_micros FROM transfers ORDER BY id"),
        ("balances, in micro-USD", "SELECT account, sum(amount_micros) FROM postings GROUP BY account ORDER BY account"),
    ):
        print(f"\n{title}")
        found = [[str(value).replace("\n", " ") for value in row] for row in rows(file, query)]
        widths = [max(map(len, column)) for column in zip(*found, strict=True)]
        for row in found:
            print("  " + "  ".join(value.ljust(width) for value, width in zip(row, widths, strict=True)).rstrip())


def rows(file: Path, query: str) -> list[tuple[object, ...]]:
    """Reads from the database without writing to it."""
    try:
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
            return database.execute(query).fetchall()
    except sqlite3.Error as error:
        raise DemoError(f"the router's database {file.name}: {error}") from None


def heading(text: str) -> None:
    """Prints the heading of a step."""
    print(f"\n{text}\n{'-' * len(text)}", flush=True)


def this_task() -> asyncio.Task[object]:
    """The task that runs this script."""
    task = asyncio.current_task()
    assert task is not None
    return task


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except SkillstreamError as error:
        sys.exit(f"\n{error}")
    except TimeoutError:
        sys.exit(f"\ndemo_failed: a task was not final within {TASK_S:g} s")
    except (KeyboardInterrupt, asyncio.CancelledError):
        sys.exit("\ninterrupted: everything that was started has ended")
