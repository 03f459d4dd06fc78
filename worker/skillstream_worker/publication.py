"""What an attempt says, from a skill's `yield` to the entries of its stream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from skillstream.clock import Clock
from skillstream_schemas.errors import EventTooLarge, OutputTooLarge, Unpublishable
from skillstream_schemas.event import HandedBack
from skillstream_schemas.ids import EventId
from skillstream_schemas.limits import utf8_length

from .answers import Loss, loss_behind
from .broker import Lease, WorkerBroker
from .chunking import Chunking
from .merging import TextBuffer
from .outbox import Outbox
from .said import Said

_ENTRY_OVERHEAD_BYTES = 64  # field names and the time beside the text of a chunk


class Publication:
    """Responsible for what one attempt says between its opening and its final, and when that is written.

    Nothing here waits but `room`, `flush`, `finish` and `hand_back`: a skill goes on while Redis writes.
    `on_loss` is called once, where the attempt can add nothing more. `chunks` counts the text chunks, `clock` tells the time.
    """

    def __init__(
        self,
        broker: WorkerBroker,
        lease: Lease,
        attempt: int,
        *,
        chunking: Chunking,
        clock: Clock,
        kept: str = "",
        on_loss: Callable[[Loss], None],
    ) -> None:
        self.chunks = 0
        self._broker, self._lease, self._attempt = broker, lease, attempt
        self._limits = broker.settings.limits
        self._chunking, self.clock = chunking, clock
        self._said = Said(kept, self._limits.output_bytes)
        self._refused: Exception | None = None
        self._buffer = TextBuffer(chunking, self._limits.event_bytes - _ENTRY_OVERHEAD_BYTES)
        self._outbox = Outbox(broker, lease, attempt, refill=self._refill, on_empty=self._arrived, on_loss=on_loss)
        self._unanswered_bytes = 0
        self._awaits_turn = False
        self._flushing = False
        self._wrote_at_s = float("-inf")
        self._timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<Publication {self._buffer!r} {self._outbox!r}>"

    @property
    def loss(self) -> Loss | None:
        """Why the attempt can add nothing more, None while it can."""
        return self._outbox.loss

    @property
    def text(self) -> str:
        """All text so far: what was kept, and what was yielded behind it."""
        return self._said.text

    @property
    def has_text(self) -> bool:
        """True once any text was kept or yielded."""
        return bool(self._said)

    @property
    def fresh(self) -> list[str] | None:
        """Where a skill's text may be put at the price of an append: `had_turn` before the first, `gather` at times.

        None where each piece is to be an entry of its own.
        """
        return self._said.fresh if self._chunking.merges else None

    @property
    def is_full(self) -> bool:
        """True where the skill has to wait for `room` (guarantee G11)."""
        self._weigh()
        if self._unanswered_bytes > self._limits.buffer_bytes:
            return True
        # one that waits for no answer would not be woken by one
        return self._broker.unanswered_bytes > self._limits.worker_buffer_bytes and self._outbox.is_under_way

    def add_text(self, text: str) -> None:
        """Says a piece of text; raises OutputTooLarge beyond the output limit, with what fits still said."""
        self.gather()
        self._buffer.add(text, self._said.add(text))
        self._touch()

    def had_turn(self) -> bool:
        """True where the event loop had a turn since this was asked last; in its next one, fresh text is gathered.

        Raises what the last gathering found wrong.
        """
        if self._refused is not None:
            raise self._refused
        if self._awaits_turn:
            return False
        self._awaits_turn = True
        asyncio.get_running_loop().call_soon(self._have_turn)
        return True

    def gather(self) -> None:
        """Says all fresh text; raises as `add_text`."""
        if self._refused is not None:
            raise self._refused
        if not self._said.fresh:
            return
        pieces = self._said.take_fresh()
        if not (text := "".join(pieces)):
            return
        try:
            self._buffer.add(text, self._said.add(text))
        except OutputTooLarge:
            for piece in pieces:  # what fits is said; the first that does not raises again
                self._buffer.add(piece, self._said.add(piece))
        finally:
            self._touch()

    def add_entry(self, *fields: str) -> None:
        """Says a status or a structured chunk, given as name, value, …; raises EventTooLarge.

        Text said before it is written before it.
        """
        size_bytes = sum(map(utf8_length, fields))
        if size_bytes + _ENTRY_OVERHEAD_BYTES > self._limits.event_bytes:
            raise EventTooLarge(f"a {fields[1]} entry of {size_bytes} bytes is over {self._limits.event_bytes} bytes")
        self.gather()
        self._seal(everything=True)
        self._append(fields, size_bytes)
        self._touch()

    async def room(self) -> None:
        """Waits until the buffer takes more; raises Unpublishable."""
        while self.is_full:
            await self._outbox.advance()

    def fence(self) -> None:
        """Refuses with Unpublishable whatever a skill still says that did not let go; what it said before is kept."""
        self._gather_soon()
        self._refused = Unpublishable("the attempt has ended, and its skill goes on")

    def check(self) -> None:
        """Raises Unpublishable behind a fence."""
        if isinstance(self._refused, Unpublishable):
            raise self._refused

    async def flush(self) -> None:
        """Waits until everything said has arrived; raises Unpublishable."""
        self._gather_soon()
        self._flushing = True
        self._touch()
        while self._buffer.chars or not self._outbox.is_empty:
            await self._outbox.advance()
        self._outbox.check()

    async def finish(self, fields: Sequence[str]) -> int | None:
        """Adds the final, given without its time, behind everything said (rule P6).

        Returns when that was (unix ms, the broker's clock), None where the attempt lost its stream.
        """
        if self._said.fresh or self._buffer.chars or not self._outbox.is_empty:
            await self.flush()
        finish = await self._broker.finish(self._lease, EventId(self._attempt, self._outbox.acknowledged), fields)
        if finish.at is None:
            self._outbox.lose(loss_behind(finish.top, self._attempt))
        return finish.at

    async def hand_back(self, why: HandedBack) -> None:
        """Says that another attempt is to go on, and waits until that has arrived (rule P10); raises Unpublishable."""
        self._gather_soon()
        self._seal(everything=True)
        self._append(("type", "status", "handed_back", why.value), 0)
        await self.flush()

    def close(self) -> None:
        """Ends the timer and the outbox; nothing more is sent."""
        if self._timer is not None:
            self._timer.cancel()
        self._outbox.close()
        self._broker.unanswered_bytes -= self._unanswered_bytes
        self._unanswered_bytes = 0

    def _weigh(self) -> None:
        """Counts what has no answer among that of the worker."""
        unanswered_bytes = self._buffer.size_bytes + self._outbox.size_bytes
        self._broker.unanswered_bytes += unanswered_bytes - self._unanswered_bytes
        self._unanswered_bytes = unanswered_bytes

    def _arrived(self) -> None:
        """Called where all that was sent has arrived."""
        self._weigh()
        self._touch()

    def _have_turn(self) -> None:
        self._awaits_turn = False
        self._gather_soon()

    def _gather_soon(self) -> None:
        try:
            if self._refused is None:
                self.gather()
        except (OutputTooLarge, UnicodeEncodeError) as error:
            self._refused = error  # the skill hears it with its next piece, or at its end

    def _touch(self) -> None:
        """Has the outbox write now, or sets the moment at which it shall."""
        if self._outbox.is_under_way or (not self._outbox.has_unsent and not self._buffer.chars):
            return
        wait_s = 0.0
        if not self._outbox.has_unsent and not self._flushing and not self._buffer.is_ripe:
            wait_s = self._wrote_at_s + self._chunking.max_delay - self.clock.elapsed_s()
        if wait_s <= 0:
            self._send()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._send)

    def _send(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._outbox.send()

    def _refill(self) -> None:
        """Called at the moment of writing."""
        self._wrote_at_s = self.clock.elapsed_s()
        self._seal(everything=self._flushing)

    def _seal(self, *, everything: bool) -> None:
        for text in self._buffer.take(everything=everything):
            self.chunks += 1
            self._append(("type", "chunk", "text", text), utf8_length(text))

    def _append(self, fields: tuple[str, ...], size_bytes: int) -> None:
        self._outbox.append((*fields, "at", str(self.clock.now_ms())), size_bytes + _ENTRY_OVERHEAD_BYTES)
