"""What was measured, and on what: versions, cores, system. No names of hosts or users."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from typing import Any

from .environments import PINS

_PACKAGES = (
    "skillstream",
    "arq",
    "redis",
    "hiredis",
    "uvloop",
    "msgpack",
    "pydantic",
    "SQLAlchemy",
    "fastapi",
    "uvicorn",
    "httptools",
    "httpx",
)


def described(broker: str) -> dict[str, Any]:
    """This machine and the versions that run on it; `broker` is what the server says of itself."""
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "broker": broker,
        "packages": {name: version(name) for name in _PACKAGES},
        "peers": {name: list(pins) for name, pins in PINS.items()},
    }


def sentence(machine: dict[str, Any]) -> str:
    """The same for people."""
    packages = ", ".join(f"{name} {number}" for name, number in machine["packages"].items())
    peers = "; ".join(f"{name}: {', '.join(pin.replace('==', ' ') for pin in pins)}" for name, pins in machine["peers"].items())
    return (
        f"{machine['cores']} cores, {machine['memory_gib']} GiB, {machine['system']}, {machine['python']}, {machine['broker']} "
        f"on the same machine, no persistence. {packages}. Peers, each in an environment of its own: {peers}."
    )
