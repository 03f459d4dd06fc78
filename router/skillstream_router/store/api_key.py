"""API keys: how one is made, what of it is kept, how it is known again."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from hashlib import sha256
from hmac import compare_digest

_ID_BYTES = 4
_SECRET_BYTES = 32
_KEY = re.compile(r"sk-([0-9a-f]{8})-[A-Za-z0-9_-]{43}\Z")


@dataclass(frozen=True, slots=True)
class ApiKey:
    """What is kept of a key: never the key itself. Times are unix ms."""

    id: str
    digest: str
    payer: str
    label: str
    created_at: int
    revoked_at: int | None = None

    def fits(self, key: str) -> bool:
        """True if this is that key and it is not revoked."""
        return self.revoked_at is None and compare_digest(self.digest, digest_of(key))


def new_key() -> tuple[str, str]:
    """A new random key and its id, which is a part of it."""
    key_id = secrets.token_hex(_ID_BYTES)
    return key_id, f"sk-{key_id}-{secrets.token_urlsafe(_SECRET_BYTES)}"


def id_of_key(key: str) -> str | None:
    """The id in a key; None for what is no key at all."""
    found = _KEY.match(key)
    return None if found is None else found[1]


def digest_of(key: str) -> str:
    """What stands in the database for a key."""
    return sha256(key.encode()).hexdigest()
