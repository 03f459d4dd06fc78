"""A line to the broker for a caller without an event loop: no other thread has to be woken for an answer."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from skillstream_schemas.errors import SkillstreamError
from skillstream_schemas.settings import Settings

from .batching import Call, ScriptBatch
from .connection import connect_blocking
from .resp import Parser, Reply, ReplyError, new_parser

_READ_BYTES = 65_536
_ANSWER_S = 1.0
"""How long answers are waited for here: patience has who goes the other way."""
_PAUSE_S = 1.0
"""After a line that could not be opened it is not tried again for so long."""
_ONE_SERVER = ("redis://", "rediss://", "unix://")


class _Line(NamedTuple):
    """redis-py's connection, and what came over it and is no whole answer yet."""

    connection: Any
    parser: Parser


class DirectLine:
    """Responsible for a caller's scripts, one after another over a blocking socket, as long as nothing is in the way.

    Where the line is closed, another thread has it, or anything but a script's answer comes, `run` returns None: the caller
    takes the way of all others then, and sends again what may have arrived, which every script allows.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        # whoever uses the line takes it out: no lock that a KeyboardInterrupt leaves held, and close waits for nobody
        self._free: list[_Line] = []
        self._exists = False
        self._next_try_s = 0.0
        self._closed = False

    def __repr__(self) -> str:
        return f"<DirectLine {'open' if self._free else 'closed'}>"

    @property
    def is_open(self) -> bool:
        """False before `open`, once anything was in the way, and while a thread has the line."""
        return bool(self._free)

    def open(self) -> None:
        """Connects, where the broker is one server; where that fails, or there is more than one, the line stays closed."""
        is_one = self._settings.redis_url.startswith(_ONE_SERVER)
        now_s = time.monotonic()
        if self._exists or self._closed or not is_one or now_s < self._next_try_s:
            return
        self._next_try_s = now_s + self._settings.connect_timeout_s  # other threads need not try at the same time
        try:
            connection = connect_blocking(self._settings)
        except SkillstreamError:
            self._next_try_s = time.monotonic() + _PAUSE_S
            return
        self._next_try_s, self._exists = 0.0, True
        connection._sock.settimeout(min(_ANSWER_S, self._settings.answer_timeout_s))
        self._put_back(_Line(connection, new_parser()))

    def close(self) -> None:
        """Closes the line, behind the call of a thread that has it; twice is safe."""
        self._closed = True
        if (line := self._take()) is not None:
            line.connection.disconnect()

    def run(self, batch: ScriptBatch, call: Call) -> Reply:
        """The last answer of a call and of those behind it, or None: it may have arrived or not."""
        line = self._take()
        if line is None:
            return None
        try:
            answer = self._ask(line, batch, call)
        except BaseException as error:
            self._exists = False
            line.connection.disconnect()  # an answer may come yet
            if isinstance(error, Exception):  # also what is no answer at all: the other way tells what is wrong
                return None
            raise
        self._put_back(line)
        return answer

    def _ask(self, line: _Line, batch: ScriptBatch, call: Call) -> Reply:
        socket, parser = line.connection._sock, line.parser
        give_up_s = time.monotonic() + _ANSWER_S
        while True:
            socket.sendall(batch.command([call]))
            while (reply := parser.gets()) is False:
                data = socket.recv(_READ_BYTES)
                if not data or time.monotonic() > give_up_s:  # the socket's own bound is one for each piece
                    raise ConnectionError
                parser.feed(data)
            if isinstance(reply, ReplyError):
                raise reply
            [answer] = reply
            if call.then is None or not call.then.allows(answer):
                return answer
            batch, call = call.then.batch, call.then.call

    def _take(self) -> _Line | None:
        try:
            return self._free.pop()
        except IndexError:
            return None

    def _put_back(self, line: _Line) -> None:
        self._free.append(line)
        if self._closed:
            self.close()
