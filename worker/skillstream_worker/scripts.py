"""The worker's scripts."""

from __future__ import annotations

from skillstream.scripts import Script

CLAIM, RENEW, RELEASE, OPEN, EXTEND, FINISH, ANNOUNCE = (
    Script.load("skillstream_worker", name) for name in ("claim", "renew", "release", "open", "extend", "finish", "announce")
)
