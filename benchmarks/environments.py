"""Virtual environments of the peers under .bench/, made on first use with the versions that are measured."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from .processes import ROOT, last_lines

PINS: dict[str, tuple[str, ...]] = {
    # hiredis everywhere, and uvloop where the peer takes it by itself: no peer is slowed by a missing extra
    "arq": ("arq==0.28.0", "redis==5.3.1", "hiredis==3.5.0"),
    "taskiq": ("taskiq==0.13.0", "taskiq-redis==1.2.4", "redis==8.1.0", "hiredis==3.5.0", "uvloop==0.23.0"),
    # saq imports typing_extensions without asking for it
    "saq": ("saq[redis,hiredis]==0.26.4", "redis==7.4.1", "typing_extensions==4.16.0"),
    "dramatiq": ("dramatiq[redis]==2.2.1", "redis==8.1.0", "hiredis==3.5.0"),
    # over HTTP: uvicorn takes uvloop and httptools where they are
    "recipe": (
        "fastapi==0.165.0", "uvicorn==0.54.0", "uvloop==0.23.0", "httptools==0.9.0", "arq==0.28.0", "redis==5.3.1",
        "hiredis==3.5.0",
    ),
    "a2a": ("a2a-sdk[http-server]==1.3.0", "uvicorn==0.54.0", "uvloop==0.23.0", "httptools==0.9.0"),
    "langgraph": (
        "langgraph-cli[inmem]==0.4.40", "langgraph-api==0.16.7", "langgraph-runtime-inmem==0.36.7", "langgraph==1.2.24",
    ),
}  # fmt: skip
INSTALL_S = 240
_OWN = ""


class NotInstalled(Exception):
    """A peer cannot be installed; the message says why."""


class Environments:
    """Responsible for the interpreters that contenders run with; each environment is tried once in a run."""

    def __init__(self, say: Callable[[str], None], folder: Path = ROOT / ".bench") -> None:
        self._say, self._folder = say, folder
        self._failed: dict[str, str] = {}

    def python(self, name: str) -> str:
        """Path of an environment's interpreter, this one for ``; raises NotInstalled."""
        if name == _OWN:
            return sys.executable
        if name in self._failed:
            raise NotInstalled(self._failed[name])
        place, pins = self._folder / name, "\n".join(PINS[name])
        marker, python = place / "installed.txt", place / "bin" / "python"
        if not marker.exists() or marker.read_text() != pins:
            self._make(name, place, python)
            marker.write_text(pins)
        return str(python)

    def _make(self, name: str, place: Path, python: Path) -> None:
        self._say(f"installing {', '.join(PINS[name])} into .bench/{name}")
        shutil.rmtree(place, ignore_errors=True)
        try:
            _run(sys.executable, "-m", "venv", str(place))
            _run(str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PINS[name])
        except NotInstalled as error:
            shutil.rmtree(place, ignore_errors=True)
            self._failed[name] = str(error)
            self._say(f"{name} cannot be installed and is left out: {error}")
            raise
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise NotInstalled(f"not done after {INSTALL_S} s") from None
    if done.returncode != 0:
        raise NotInstalled(last_lines(done.stderr, 1))
