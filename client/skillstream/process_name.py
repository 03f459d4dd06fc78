"""Names by which processes on one broker are told apart."""

from __future__ import annotations

import os
import secrets
import socket


def process_name() -> str:
    """A name that no other process has: host and process id for people, and chance for containers, where both recur."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
