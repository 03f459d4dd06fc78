"""The `skillstream` command: says which extra is missing where it cannot start."""

from __future__ import annotations

import importlib.util
import sys

from skillstream_command import INTERRUPTED, end_at_ctrl_c

_NEEDED = ("typer", "rich")


def main() -> None:
    """Runs the command line."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        text = f"missing_extra: the command needs {' and '.join(missing)} (pip install 'skillstream[cli]')"
        sys.stderr.write(text + "\n")
        raise SystemExit(2)
    try:
        from .cli.app import run

        run()
    except KeyboardInterrupt:  # between two steps, none of which has it in hand
        raise SystemExit(INTERRUPTED) from None


if __name__ == "__main__":
    end_at_ctrl_c()
    main()
