"""Lua scripts: one file each, whose header names KEYS, ARGV and what it returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha1
from importlib.resources import files

from .resp import Argument


@dataclass(frozen=True, slots=True)
class Script:
    """A script as Redis knows it: by the SHA-1 of its source."""

    name: str
    source: bytes
    sha: bytes

    @classmethod
    def load(cls, package: str, name: str) -> Script:
        """Reads `lua/<name>.lua` of a package."""
        source = files(package).joinpath("lua", f"{name}.lua").read_bytes()
        return cls(name, source, sha1(source, usedforsecurity=False).hexdigest().encode())

    def evalsha(self, keys: Sequence[Argument], arguments: Sequence[Argument]) -> list[Argument]:
        """The command that runs the script where Redis has it."""
        return ["EVALSHA", self.sha, len(keys), *keys, *arguments]


SUBMIT, ENQUEUE, CANCEL, CLOSE, SETTLE = (
    Script.load("skillstream", name) for name in ("submit", "enqueue", "cancel", "close", "settle")
)
