"""The test's hold on a real uAgents agent in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any
from uuid import UUID, uuid4

from uagents_core.identity import Identity

from tests.router.eventually import eventually
from tests.support.processes import ROOT
from tests.support.redis_server import free_port

Record = dict[str, Any]
READY_S = 30.0


class ChatPeer:
    """Responsible for the process: `records` are what it printed, in order."""

    def __init__(self, seed: str, known: dict[str, str]) -> None:
        self.port = free_port()
        self.identity = Identity.from_seed(seed, 0)
        self.records: list[Record] = []
        self.output: list[str] = []
        self._folder = tempfile.TemporaryDirectory()  # the library logs to a file where it stands
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.connect.peer_process", str(self.port), seed, json.dumps(known)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=self._folder.name,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def address(self) -> str:
        return str(self.identity.address)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/submit"

    def wait_ready(self) -> None:
        """Waits until it takes messages; a blocking wait, for fixtures."""
        give_up = time.monotonic() + READY_S
        while not any(record["kind"] == "ready" for record in self.records):
            if time.monotonic() > give_up or self._process.poll() is not None:
                raise AssertionError("the peer is not ready:\n" + "\n".join(self.output))
            time.sleep(0.02)

    def say(
        self, to: str, text: str = "", *, session: UUID | None = None, msg_id: UUID | None = None, content: Any = None
    ) -> UUID:
        """Has the agent send a message; returns its session."""
        session = session or uuid4()
        message = {"content": content or [{"type": "text", "text": text}], "msg_id": str(msg_id or uuid4())}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"to": to, "session": str(session), "message": message}) + "\n")
        self._process.stdin.flush()
        return session

    def contents(self, session: UUID) -> list[Record]:
        """Contents of the messages that came in a session, in order."""
        messages = [record for record in self.records if record["kind"] == "message" and record["session"] == str(session)]
        return [content for message in messages for content in message["content"]]

    def kinds(self, session: UUID) -> list[str]:
        """Types of those contents, text pieces that follow one another as one."""
        kinds = [content["type"] for content in self.contents(session)]
        return [kind for place, kind in enumerate(kinds) if kind != "text" or place == 0 or kinds[place - 1] != "text"]

    def text(self, session: UUID) -> str:
        """All text of a session."""
        return "".join(content.get("text", "") for content in self.contents(session))

    def acks(self, session: UUID) -> list[str]:
        """Message ids that were acknowledged in a session."""
        return [record["msg_id"] for record in self.records if record["kind"] == "ack" and record["session"] == str(session)]

    async def until(self, condition: Any, what: str, bound_s: float = 10.0) -> None:
        """Waits until something that has to do with records is true."""
        try:
            await eventually(condition, what, bound_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\n" + "\n".join(self.output[-30:])) from None

    def stop(self) -> None:
        """Ends the process."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._reader.join(timeout=10)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._folder.cleanup()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.output.append(line.rstrip())
            if line.startswith("{"):
                self.records.append(json.loads(line))
