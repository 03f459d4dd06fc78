"""An attempt's place on its stream: what was said, what was sent, what is known to have arrived (rule P5)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from skillstream.clock import Clock
from skillstream.resp import Reply, ReplyError, pack
from skillstream_schemas.errors import BrokerRefused, BrokerUnavailable, EventTooLarge, OutputTooLarge, Unpublishable
from skillstream_schemas.event import HandedBack
from skillstream_schemas.ids import EventId
from skillstream_schemas.limits import utf8_length

from .answers import Loss, is_stale_link, loss_behind, passes, problem_of
from .broker import Lease, WorkerBroker
from .chunking import Chunking
from .merging import TextBuffer

_UNIT_BYTES = 256 * 1024
_ENTRY_OVERHEAD_BYTES = 64  # field names and the time beside the text of a chunk
_LOOKS = 8  # at a refusal that no waiting mends
_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 1.0


class _Entry(NamedTuple):
    seq: int
    fields: tuple[str, ...]


class Publication:
    """Responsible for the entries of one attempt between its opening and its final.

    Nothing here waits but `room`, `flush`, `finish` and `hand_back`: a skill goes on while Redis writes.
    `on_loss` is called once, where the attempt can add nothing more.
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
        self.loss: Loss | None = None
        self.chunks = 0
        self._broker, self._lease, self._attempt = broker, lease, attempt
        self._key = broker.keys.events(lease.task_id)
        self._limits = broker.settings.limits
        self._chunking, self._clock, self._on_loss = chunking, clock, on_loss
        self._said: list[str] = [kept] if kept else []
        self._said_bytes = utf8_length(kept)
        self._buffer = TextBuffer(chunking, self._limits.event_bytes - _ENTRY_OVERHEAD_BYTES)
        self._unsent: deque[tuple[str, ...]] = deque()
        self._unsent_bytes = 0
        self._sent: list[_Entry] = []
        self._resend = False
        self._sent_bytes = 0
        self._acknowledged = 1
        self._generation = broker.pipeline.generation
        self._queued = False
        self._flushing = False
        self._wrote_at_s = float("-inf")
        self._timer: asyncio.TimerHandle | None = None
        self._looking: asyncio.Task[None] | None = None
        self._looks = 0
        self._closed = False
        self._progress = asyncio.Event()

    def __repr__(self) -> str:
        return (
            f"<Publication {self._lease.task_id} attempt={self._attempt} acknowledged={self._acknowledged} "
            f"sent={len(self._sent)} unsent={len(self._unsent)} loss={self.loss}>"
        )

    @property
    def text(self) -> str:
        """All text so far: what was kept, and what was yielded behind it."""
        if len(self._said) > 1:
            self._said = ["".join(self._said)]
        return self._said[0] if self._said else ""

    @property
    def has_text(self) -> bool:
        """True once any text was kept or yielded."""
        return bool(self._said)

    @property
    def is_full(self) -> bool:
        """True where the skill has to wait for `room` (guarantee G11)."""
        return self._buffer.size_bytes + self._unsent_bytes + self._sent_bytes > self._limits.buffer_bytes

    def add_text(self, text: str) -> None:
        """Says a piece of text; raises OutputTooLarge beyond the output limit, with what fits still said."""
        size_bytes = utf8_length(text)
        if self._said_bytes + size_bytes > self._limits.output_bytes:
            raise OutputTooLarge(f"the text is over {self._limits.output_bytes} bytes")
        self._said_bytes += size_bytes
        self._said.append(text)
        self._buffer.add(text, size_bytes)
        self._touch()

    def add_entry(self, *fields: str) -> None:
        """Says a status or a structured chunk, given as name, value, …; raises EventTooLarge.

        Text said before it is written before it.
        """
        size_bytes = sum(map(utf8_length, fields))
        if size_bytes + _ENTRY_OVERHEAD_BYTES > self._limits.event_bytes:
            raise EventTooLarge(f"a {fields[1]} entry of {size_bytes} bytes is over {self._limits.event_bytes} bytes")
        self._seal(everything=True)
        self._append(fields)
        self._touch()

    async def room(self) -> None:
        """Waits until the buffer takes more; raises Unpublishable."""
        while self.is_full:
            await self._advance()

    async def flush(self) -> None:
        """Waits until everything said has arrived; raises Unpublishable."""
        self._flushing = True
        self._touch()
        while self._buffer.chars or self._unsent or self._sent:
            await self._advance()
        self._raise_loss()

    async def finish(self, fields: Sequence[str]) -> bool:
        """Adds the final behind everything said; False where the attempt lost its stream (rule P6)."""
        await self.flush()
        last, final = EventId(self._attempt, self._acknowledged), EventId(self._attempt, self._acknowledged + 1)
        finish = await self._broker.finish(self._lease, last, final, fields)
        if not finish.is_there:
            self._lose(loss_behind(finish.top, self._attempt))
        return finish.is_there

    async def hand_back(self, why: HandedBack) -> None:
        """Says that another attempt is to go on, and waits until that has arrived (rule P10); raises Unpublishable."""
        self._seal(everything=True)
        self._append(("type", "status", "handed_back", why.value))
        await self.flush()

    def close(self) -> None:
        """Ends timers and looks; nothing more is sent."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._looking is not None:
            self._looking.cancel()
        self._unsent.clear()
        self._sent.clear()

    def pack(self) -> tuple[bytes, int]:
        """Called by the pipeline at the moment of writing: this attempt's next entries as one unit."""
        if self.loss is not None or self._closed:
            return b"", 0
        if self._generation != self._broker.pipeline.generation:
            # no answer tells of a connection that broke while nothing was under way; it stays queued until it has looked
            self._start_look(BrokerUnavailable("the connection was made again"))
            return b"", 0
        self._queued = False
        if self._resend:
            self._resend = False
        else:
            self._seal(everything=self._flushing)
            self._take_unsent()
        if not self._sent:
            return b"", 0
        self._wrote_at_s = self._clock.elapsed_s()
        commands = [pack(("XADD", self._key, "NOMKSTREAM", f"{self._attempt}-{e.seq}", *e.fields)) for e in self._sent]
        if len(commands) == 1:
            return commands[0], 1
        # one refusal inside a plain pipeline would leave a hole: a transaction is added whole or not at all
        return b"".join((pack(("MULTI",)), *commands, pack(("EXEC",)))), len(commands) + 2

    def deliver(self, replies: Sequence[Reply] | BrokerUnavailable) -> None:
        """Called by the pipeline with the answers."""
        if self.loss is not None or self._closed:
            return
        if not self._sent:
            self._lose(Loss.BROKER)  # it was never packed: the pipeline's patience has ended
            return
        problem = replies if isinstance(replies, BrokerUnavailable) else problem_of(replies)
        if problem is None:
            self._looks = 0
            self._arrived(self._sent[-1].seq)
            self._touch()
        else:
            if is_stale_link(problem):
                self._broker.pipeline.drop_connection(str(problem))
            self._start_look(problem)

    def _start_look(self, problem: ReplyError | BrokerUnavailable) -> None:
        self._looking = asyncio.get_running_loop().create_task(self._look(problem), name=f"look {self._lease.task_id}")

    def _touch(self) -> None:
        """Has the pipeline write now, or sets the moment at which it shall."""
        if self._queued or self._sent or self.loss is not None:
            return
        if not self._unsent and not self._buffer.chars:
            return
        wait_s = 0.0
        if not self._unsent and not self._flushing and not self._buffer.is_ripe:
            wait_s = self._wrote_at_s + self._chunking.max_delay - self._clock.elapsed_s()
        if wait_s <= 0:
            self._queue()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if not self._queued and not self._sent and self.loss is None:
            self._queue()

    def _queue(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._queued = True
        self._broker.pipeline.add(self)

    def _seal(self, *, everything: bool) -> None:
        for text in self._buffer.take(everything=everything):
            self.chunks += 1
            self._append(("type", "chunk", "text", text))

    def _append(self, fields: tuple[str, ...]) -> None:
        entry = (*fields, "at", str(self._clock.now_ms()))
        self._unsent.append(entry)
        self._unsent_bytes += sum(map(utf8_length, entry))

    def _take_unsent(self) -> None:
        seq, size_bytes = self._acknowledged, 0
        while self._unsent and size_bytes < _UNIT_BYTES:
            fields = self._unsent.popleft()
            seq += 1
            size_bytes += sum(map(utf8_length, fields))
            self._sent.append(_Entry(seq, fields))
        self._unsent_bytes -= size_bytes
        self._sent_bytes = size_bytes

    def _arrived(self, seq: int) -> None:
        """Takes note that all entries up to `seq` stand on the stream."""
        self._sent = [entry for entry in self._sent if entry.seq > seq]
        self._sent_bytes = sum(utf8_length(part) for entry in self._sent for part in entry.fields)
        self._acknowledged = max(self._acknowledged, seq)
        self._progress.set()

    async def _look(self, problem: ReplyError | BrokerUnavailable) -> None:
        """Finds out what has arrived after an answer that does not say so, and sends the rest again as it was."""
        self._looks += 1
        if isinstance(problem, ReplyError):
            await asyncio.sleep(min(_FIRST_PAUSE_S * 2**self._looks, _LONGEST_PAUSE_S))
        try:
            top = await self._broker.look(self._lease.task_id, self._attempt)
        except (BrokerUnavailable, BrokerRefused):
            self._lose(Loss.BROKER)
            return
        if top.id is None or top.claim != self._lease.claim or not self._can_be_mine(top.id):
            self._lose(loss_behind(top.id, self._attempt))
        elif top.id.seq == self._acknowledged and self._looks > _LOOKS and not passes(problem):
            self._lose(Loss.BROKER)
        else:
            self._generation = self._broker.pipeline.generation
            self._queued = False
            self._arrived(top.id.seq)
            self._resend = bool(self._sent)
            if self._resend:
                self._queue()
            else:
                self._touch()

    def _can_be_mine(self, top: EventId) -> bool:
        newest = self._sent[-1].seq if self._sent else self._acknowledged
        return top.attempt == self._attempt and self._acknowledged <= top.seq <= newest

    async def _advance(self) -> None:
        self._raise_loss()
        self._progress.clear()
        await self._progress.wait()
        self._raise_loss()

    def _raise_loss(self) -> None:
        if self.loss is not None:
            raise Unpublishable(f"task {self._lease.task_id}, attempt {self._attempt}: {self.loss}")

    def _lose(self, loss: Loss) -> None:
        if self.loss is None:
            self.loss = loss
            self._progress.set()
            self._on_loss(loss)
