"""Where a command finds the broker and the database: flag, environment, a running `dev`, default."""

from __future__ import annotations

import fcntl
import json
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

from skillstream_schemas.errors import InvalidSettings
from skillstream_schemas.settings import Settings

from .output import note

DATA_FOLDER = ".skillstream"
"""Where `dev` keeps its data unless told otherwise."""
_RECORD = "dev.json"
_DATABASE = "skillstream.db"
_FIELDS = ("redis_url", "database_url")


def settings_from(**flags: Any) -> Settings:
    """Settings of a command; flags that are not None win over the environment, that over a running `dev`.

    Raises InvalidSettings.
    """
    overrides = {name: value for name, value in flags.items() if value is not None}
    untold = [name for name in _FIELDS if name not in overrides and not os.environ.get(f"SKILLSTREAM_{name.upper()}")]
    running = _read_running() if untold else {}
    taken = {name: running[name] for name in untold if name in running}
    if taken and running.get("elsewhere"):
        _say_whose(str(running.get("folder")), int(running["pid"]))
    return Settings.from_env(os.environ, **overrides, **taken)


@lru_cache
def _say_whose(folder: str, pid: int) -> None:
    """Once a process: whoever is in another folder may mean another broker."""
    note(f"asking the dev of {folder} (process {pid}); --redis and --database, or SKILLSTREAM_REDIS_URL and so on, name another")


def database_settings(database_url: str | None) -> Settings:
    """Settings of a command that reads the database: without any word of one, what a `dev` left in this folder is taken.

    Raises InvalidSettings.
    """
    settings = settings_from(database_url=database_url)
    left = Path(DATA_FOLDER) / _DATABASE
    is_told = settings.database_url != Settings().database_url
    if is_told or Path(_DATABASE).exists() or not left.exists():
        return settings
    note(f"reading {left}, which a dev has left here (--database or SKILLSTREAM_DATABASE_URL names another)")
    return settings.changed(database_url=f"sqlite:///{left.resolve()}")


def environment_of(settings: Settings) -> dict[str, str]:
    """This process's environment, with these URLs, for processes that it starts: arguments are seen by everyone."""
    return {**os.environ, **{f"SKILLSTREAM_{name.upper()}": getattr(settings, name) for name in _FIELDS}}


def publish_running(settings: Settings, folder: Path) -> None:
    """Leaves the URLs of a running `dev` in its data folder, and where commands of the same user look from elsewhere."""
    record = {name: getattr(settings, name) for name in _FIELDS} | {"pid": os.getpid(), "folder": str(folder.resolve())}
    users = _users_file()
    users.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    for path in (folder / _RECORD, users):
        path.touch(mode=0o600)
        path.chmod(0o600)  # also where it was there before
        path.write_text(json.dumps(record))


def withdraw_running(folder: Path) -> None:
    """Takes back what `publish_running` left, unless another `dev` has put its own there."""
    for path in (folder / _RECORD, _users_file()):
        if _read(path).get("pid") == os.getpid():
            path.unlink(missing_ok=True)


def claim_folder(folder: Path) -> int:
    """Keeps a folder for this process, and for those that it hands the returned descriptor, until all of them have ended.

    Raises InvalidSettings where others have it: two brokers on one append-only file run each other's tasks again.
    """
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        owner = os.read(lock, 100).decode(errors="replace").strip()
        os.close(lock)
        raise InvalidSettings(
            f"the data folder {folder} is in use by process {owner or 'unknown'}; another one is named by --data"
        ) from None
    name_owner(lock, os.getpid())
    return lock  # it stays open: the lock goes with the process


def name_owner(lock: int, pid: int) -> None:
    """Says in a lock's file who is to be ended where the folder is wanted by another."""
    os.ftruncate(lock, 0)
    os.pwrite(lock, str(pid).encode(), 0)


def _read_running() -> dict[str, Any]:
    """What the nearest running `dev` left: in this folder or one above it, else anywhere."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        if found := _read(folder / DATA_FOLDER / _RECORD):
            return found
    return {**found, "elsewhere": True} if (found := _read(_users_file())) else {}


def _read(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_uid != os.getuid():  # nobody else says where our tasks go
            return {}
        record = json.loads(path.read_text())
        os.kill(int(record["pid"]), 0)
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return record if isinstance(record, dict) else {}


def _users_file() -> Path:
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "skillstream" / _RECORD
