"""No peer: the two scripts of a submission, one behind the other's answer, over a bare blocking socket; nothing is checked.

What rule P1 and the broker leave of a caller's time, whatever a client does with the rest.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from skillstream.resp import Argument, Reply, new_parser, pack
from skillstream.scripts import ENQUEUE, SUBMIT
from skillstream_schemas import keys
from skillstream_schemas.ids import new_task_id
from skillstream_schemas.keys import Keyspace

from .program import SyncSend, main_sync
from .recording import URL
from .skillstream_program import work

_TTL_MS = 7 * 86_400_000
_CARD = ("max_attempts", "3", "price_micros", "0", "on_retry", "restart")


@contextmanager
def client() -> Iterator[SyncSend]:
    """A client whose `send` runs both scripts for a no-op task."""
    address, parser, keyspace = urlsplit(URL), new_parser(), Keyspace()
    with socket.create_connection((address.hostname, address.port)) as line:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def ask(*arguments: Argument) -> Reply:
            line.sendall(pack(arguments))
            while (reply := parser.gets()) is False:
                parser.feed(line.recv(65_536))
            return reply

        def send(sent: float) -> None:
            task_id = new_task_id()
            inbox, events = keyspace.inbox_of(task_id), keyspace.events(task_id)
            fields = ("agent", "bench", "skill", "noop", "message", repr(sent), *_CARD)
            new = ask("EVALSHA", SUBMIT.sha, 2, inbox, events, task_id, _TTL_MS, len(fields), *fields)
            member = f"{{bench}}:{task_id}"
            queue, wake, job = keys.queue("bench"), keyspace.wake("bench"), keys.job(member)
            queued = ask("EVALSHA", ENQUEUE.sha, 3, queue, wake, job, 10_000, 3_600_000, member, 0, _TTL_MS)
            if (new, queued) != ([[b"new"]], [1]):
                raise SystemExit(f"the scripts answered {new!r} and {queued!r}")

        for script in (SUBMIT, ENQUEUE):
            ask("SCRIPT", "LOAD", script.source)
        yield send


if __name__ == "__main__":
    main_sync(work, client)
