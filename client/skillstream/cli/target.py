"""Where a command finds the broker and the database: flag, environment, a running `dev`, default."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

from skillstream_schemas.errors import InvalidSettings
from skillstream_schemas.settings import Settings

_FIELDS = ("redis_url", "database_url")


def settings_from(**flags: Any) -> Settings:
    """Settings of a command; flags that are not None win over the environment, that over a running `dev`.

    Raises InvalidSettings.
    """
    overrides = {name: value for name, value in flags.items() if value is not None}
    running = _read_running()
    for name in _FIELDS:
        if name not in overrides and not os.environ.get(f"SKILLSTREAM_{name.upper()}") and name in running:
            overrides[name] = running[name]
    return Settings.from_env(os.environ, **overrides)


def environment_of(settings: Settings) -> dict[str, str]:
    """This process's environment, with these URLs, for processes that it starts: arguments are seen by everyone."""
    return {**os.environ, **{f"SKILLSTREAM_{name.upper()}": getattr(settings, name) for name in _FIELDS}}


def publish_running(settings: Settings) -> Path:
    """Leaves the URLs of a running `dev` where other commands of the same user find them; returns the file."""
    path = _path()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    record = {name: getattr(settings, name) for name in _FIELDS} | {"pid": os.getpid()}
    path.touch(mode=0o600)
    path.chmod(0o600)  # also where it was there before
    path.write_text(json.dumps(record))
    return path


def withdraw_running() -> None:
    """Takes back what `publish_running` left, unless another `dev` has put its own there."""
    if _read_running().get("pid") == os.getpid():
        _path().unlink(missing_ok=True)


def claim_folder(folder: Path) -> None:
    """Keeps a data folder for this process until it ends; raises InvalidSettings where another one has it.

    Two brokers on one append-only file run each other's tasks again.
    """
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        owner = os.read(lock, 100).decode(errors="replace").strip()
        os.close(lock)
        raise InvalidSettings(f"the data folder {folder} is in use by process {owner or 'unknown'}") from None
    os.ftruncate(lock, 0)
    os.write(lock, str(os.getpid()).encode())  # the descriptor stays open: the lock goes with the process


def _read_running() -> dict[str, Any]:
    try:
        record = json.loads(_path().read_text())
        os.kill(int(record["pid"]), 0)
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return record if isinstance(record, dict) else {}


def _path() -> Path:
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "skillstream" / "dev.json"
