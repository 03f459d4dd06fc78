"""A folder with an agent in it, for a `skillstream dev` of its own."""

from __future__ import annotations

import os
from pathlib import Path

from .processes import Process


def dev_environment(folder: Path, module: str, text: str) -> dict[str, str]:
    """Writes a module into the folder; the environment in which `dev` finds it and leaves its traces in the folder alone."""
    (folder / f"{module}.py").write_text(text)
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    return {"XDG_STATE_HOME": str(folder / "state"), "PYTHONPATH": path}


def until_ready(dev: Process, timeout_s: float = 60.0) -> None:
    """Waits until worker and router of a `dev` are ready, in any order."""
    for _ in ("worker", "router"):
        dev.wait_for("is ready", timeout_s)
