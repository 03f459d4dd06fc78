"""Read tokens: what a browser gets to follow one task for a short time, instead of an API key."""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass
from hashlib import sha256

_TOKEN = re.compile(r"rt-([0-9a-f]{8}|)-([0-9]{10,16})-([0-9]{1,16})-([0-9a-f]{64})\Z")


@dataclass(frozen=True, slots=True)
class ReadToken:
    """A token as it is read: the key whose owner gave it, "" for an open gateway, and unix ms until which it is good.

    `submitted_at` (unix ms) tells its task from a later one of the same id.
    """

    key_id: str
    expires_at: int
    submitted_at: int


class TokenSigner:
    """Responsible for signing read tokens and knowing them again; nothing is kept of a token."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def sign(self, task_id: str, token: ReadToken) -> str:
        """The text of a token for a task."""
        return f"rt-{token.key_id}-{token.expires_at}-{token.submitted_at}-{self._signature(task_id, token)}"

    def read(self, task_id: str, text: str, now_ms: int) -> ReadToken | None:
        """The token, if it was signed here for this task and is still good."""
        found = _TOKEN.match(text)
        if found is None:
            return None
        token = ReadToken(found[1], int(found[2]), int(found[3]))
        if not hmac.compare_digest(found[4], self._signature(task_id, token)) or token.expires_at <= now_ms:
            return None
        return token

    def _signature(self, task_id: str, token: ReadToken) -> str:
        signed = f"read {task_id} {token.key_id} {token.expires_at} {token.submitted_at}"
        return hmac.new(self._secret, signed.encode(), sha256).hexdigest()
