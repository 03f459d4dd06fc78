"""A line to the broker for a caller without an event loop: no other thread has to be woken for an answer."""

from __future__ import annotations

import threading
import time
from typing import Any

from skillstream_schemas.errors import SkillstreamError
from skillstream_schemas.settings import Settings

from .batching import Call, ScriptBatch
from .connection import connect_blocking
from .resp import Reply, ReplyError, new_parser

_READ_BYTES = 65_536
_ANSWER_S = 1.0
"""How long a script's answer is waited for here: patience has who goes the other way."""
_PAUSE_S = 1.0
"""After a line that could not be opened it is not tried again for so long."""
_ONE_SERVER = ("redis://", "rediss://", "unix://")


class DirectLine:
    """Responsible for a caller's scripts, one after another over a blocking socket, as long as nothing is in the way.

    Where the line is closed, another thread has it, or anything but a script's answer comes, `run` returns None: the caller
    takes the way of all others then, and sends again what may have arrived, which every script allows.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._connection: Any = None
        self._parser = new_parser()
        self._use = threading.Lock()
        self._next_try_s = 0.0
        self._closed = False

    def __repr__(self) -> str:
        return f"<DirectLine {'closed' if self._connection is None else 'open'}>"

    @property
    def is_open(self) -> bool:
        """False before `open`, and once anything was in the way."""
        return self._connection is not None

    def open(self) -> None:
        """Connects, where the broker is one server; where that fails, or there is more than one, the line stays closed."""
        with self._use:
            is_one = self._settings.redis_url.startswith(_ONE_SERVER)
            if self._connection is not None or self._closed or not is_one or time.monotonic() < self._next_try_s:
                return
            try:
                self._connection = connect_blocking(self._settings)
            except SkillstreamError:
                self._next_try_s = time.monotonic() + _PAUSE_S
                return
            self._connection._sock.settimeout(min(_ANSWER_S, self._settings.answer_timeout_s))
            self._parser = new_parser()

    def close(self) -> None:
        """Closes the line; twice is safe."""
        self._closed = True
        with self._use:
            self._drop()

    def run(self, batch: ScriptBatch, call: Call) -> Reply:
        """The last answer of a call and of those behind it, or None: it may have arrived or not."""
        if self._connection is None or not self._use.acquire(blocking=False):
            return None
        try:
            return None if self._connection is None else self._run(self._connection._sock, batch, call)
        except BaseException as error:
            self._drop()  # an answer may come yet
            if isinstance(error, (OSError, ReplyError)):
                return None
            raise
        finally:
            self._use.release()

    def _run(self, line: Any, batch: ScriptBatch, call: Call) -> Reply:
        while True:
            line.sendall(batch.command([call]))
            while (reply := self._parser.gets()) is False:
                data = line.recv(_READ_BYTES)
                if not data:
                    raise ConnectionError
                self._parser.feed(data)
            if isinstance(reply, ReplyError):
                raise reply
            [answer] = reply
            if call.then is None or not call.then.allows(answer):
                return answer
            batch, call = call.then.batch, call.then.call

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()
