"""The router's scripts."""

from __future__ import annotations

from skillstream.scripts import Script

CONTEXT, FORGET, LOST = (Script.load("skillstream_router", name) for name in ("context", "forget", "lost"))
