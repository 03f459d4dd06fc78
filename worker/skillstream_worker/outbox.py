"""Entries of one attempt on their way to its stream: numbered once, sent in units, known to have arrived (rule P5)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from skillstream.resp import Reply, ReplyError, pack
from skillstream_schemas.errors import BrokerRefused, BrokerUnavailable, Unpublishable
from skillstream_schemas.ids import EventId

from .answers import Loss, is_stale_link, loss_behind, passes, problem_of
from .broker import Lease, WorkerBroker

_UNIT_BYTES = 256 * 1024
_LOOKS = 8  # at a refusal that no waiting mends
_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 1.0


class _Unsent(NamedTuple):
    size_bytes: int
    fields: tuple[str, ...]


class _Entry(NamedTuple):
    seq: int
    size_bytes: int
    fields: tuple[str, ...]


class Outbox:
    """Responsible for the ids of an attempt: dense, one unit under way, content unchanged once sent.

    `refill` is called at the moment of writing, so that what gathers meanwhile goes along; `on_empty` where
    everything has arrived. `on_loss` is called once, where the attempt can add nothing more; `loss` says why.
    """

    def __init__(
        self,
        broker: WorkerBroker,
        lease: Lease,
        attempt: int,
        *,
        refill: Callable[[], None],
        on_empty: Callable[[], None],
        on_loss: Callable[[Loss], None],
    ) -> None:
        self.loss: Loss | None = None
        self.acknowledged = 1
        self.size_bytes = 0
        """What was appended and is not known to have arrived."""
        self._broker, self._lease, self._attempt = broker, lease, attempt
        self._key = broker.keys.events(lease.task_id)
        self._refill, self._on_empty, self._on_loss = refill, on_empty, on_loss
        self._unsent: deque[_Unsent] = deque()
        self._sent: list[_Entry] = []
        self._resend = False
        self._link = broker.pipeline.link_of(self._key)
        self._generation = self._link.generation
        self._queued = False
        self._looking: asyncio.Task[None] | None = None
        self._looks = 0
        self._closed = False
        self._progress = asyncio.Event()

    def __repr__(self) -> str:
        return (
            f"<Outbox {self._lease.task_id} attempt={self._attempt} acknowledged={self.acknowledged} "
            f"sent={len(self._sent)} unsent={len(self._unsent)} loss={self.loss}>"
        )

    @property
    def is_empty(self) -> bool:
        """True where everything appended is known to have arrived."""
        return not self._unsent and not self._sent

    @property
    def has_unsent(self) -> bool:
        """True where entries wait for the next unit."""
        return bool(self._unsent)

    @property
    def is_under_way(self) -> bool:
        """True while a unit waits to be written or for its answers: the next one is written behind it by itself."""
        return self._queued or bool(self._sent)

    def append(self, fields: tuple[str, ...], size_bytes: int) -> None:
        """Takes an entry of about `size_bytes`; `send` has it written."""
        self._unsent.append(_Unsent(size_bytes, fields))
        self.size_bytes += size_bytes

    def send(self) -> None:
        """Has the pipeline write the next unit, unless one is under way."""
        if not self.is_under_way and self.loss is None and not self._closed:
            self._queue()

    async def advance(self) -> None:
        """Waits until something has arrived; raises Unpublishable."""
        self.check()
        self._progress.clear()
        await self._progress.wait()
        self.check()

    def check(self) -> None:
        """Raises Unpublishable where the attempt can add nothing more."""
        if self.loss is not None:
            raise Unpublishable(f"task {self._lease.task_id}, attempt {self._attempt}: {self.loss}")

    def lose(self, loss: Loss) -> None:
        """The attempt can add nothing more."""
        if self.loss is None:
            self.loss = loss
            self._progress.set()
            self._on_loss(loss)

    def close(self) -> None:
        """Ends a look; nothing more is sent."""
        self._closed = True
        if self._looking is not None:
            self._looking.cancel()
        self._unsent.clear()
        self._sent.clear()
        # these tie the outbox to its attempt and back: without them an attempt is freed at once, not by the collector
        self._refill = self._on_empty = _nothing
        self._on_loss = _unheard

    def pack(self) -> tuple[bytes, int]:
        """Called by the pipeline at the moment of writing: the next entries as one unit."""
        if self.loss is not None or self._closed:
            return b"", 0
        if self._generation != self._link.generation:
            # no answer tells of a connection that broke while nothing was under way; it stays queued until it has looked
            self._start_look(BrokerUnavailable("the connection was made again"))
            return b"", 0
        self._queued = False
        if self._resend:
            self._resend = False
        else:
            self._refill()
            self._take_unsent()
        if not self._sent:
            self._progress.set()  # no answer will come: whoever waits for one looks again
            return b"", 0
        commands = [pack(("XADD", self._key, "NOMKSTREAM", f"{self._attempt}-{e.seq}", *e.fields)) for e in self._sent]
        if len(commands) == 1:
            return commands[0], 1
        # one refusal inside a plain pipeline would leave a hole: a transaction is added whole or not at all
        return b"".join((pack(("MULTI",)), *commands, pack(("EXEC",)))), len(commands) + 2

    def deliver(self, replies: Sequence[Reply] | BrokerUnavailable) -> None:
        """Called by the pipeline with the answers."""
        if self.loss is not None or self._closed:
            return
        if not self._sent and not self._link.is_node:
            self.lose(Loss.BROKER)  # it was never packed: the pipeline's patience has ended
            return
        problem = replies if isinstance(replies, BrokerUnavailable) else problem_of(replies)
        if problem is None:
            self._looks = 0
            self._arrived(self._sent[-1].seq)
        else:
            if is_stale_link(problem):
                self._link.drop_connection(str(problem))
            self._start_look(problem)

    def _queue(self) -> None:
        self._queued = True
        self._link.add(self)

    def _take_unsent(self) -> None:
        seq, unit_bytes = self.acknowledged, 0
        while self._unsent and unit_bytes < _UNIT_BYTES:
            unsent = self._unsent.popleft()
            seq += 1
            unit_bytes += unsent.size_bytes
            self._sent.append(_Entry(seq, *unsent))

    def _arrived(self, seq: int) -> None:
        """Takes note that all entries up to `seq` stand on the stream, and goes on with what waits."""
        self.size_bytes -= sum([entry.size_bytes for entry in self._sent if entry.seq <= seq])
        self._sent = [entry for entry in self._sent if entry.seq > seq]
        self.acknowledged = max(self.acknowledged, seq)
        self._progress.set()
        self._resend = bool(self._sent)
        if not self.is_empty:
            self._queue()
        else:
            self._on_empty()

    def _start_look(self, problem: ReplyError | BrokerUnavailable) -> None:
        self._looking = asyncio.get_running_loop().create_task(self._look(problem), name=f"look {self._lease.task_id}")

    async def _look(self, problem: ReplyError | BrokerUnavailable) -> None:
        """Finds out what has arrived after an answer that does not say so, and sends the rest again as it was."""
        self._looks += 1
        if isinstance(problem, ReplyError):
            await asyncio.sleep(min(_FIRST_PAUSE_S * 2**self._looks, _LONGEST_PAUSE_S))
        try:
            top = await self._broker.look(self._lease.task_id, self._attempt)
        except (BrokerUnavailable, BrokerRefused):
            self.lose(Loss.BROKER)
            return
        if top.id is None or top.claim != self._lease.claim or not self._can_be_mine(top.id):
            self.lose(loss_behind(top.id, self._attempt))
        elif top.id.seq == self.acknowledged and self._looks > _LOOKS and not passes(problem):
            self.lose(Loss.BROKER)
        else:
            self._link = self._broker.pipeline.link_of(self._key)  # another one where the stream has moved
            self._generation = self._link.generation
            self._queued = False
            self._arrived(top.id.seq)

    def _can_be_mine(self, top: EventId) -> bool:
        newest = self._sent[-1].seq if self._sent else self.acknowledged
        return top.attempt == self._attempt and self.acknowledged <= top.seq <= newest


def _nothing() -> None:
    """What a closed outbox asks for."""


def _unheard(loss: Loss) -> None:
    """Whom a closed outbox tells."""
