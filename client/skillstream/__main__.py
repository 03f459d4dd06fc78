"""The `skillstream` command: says which extra is missing where it cannot start."""

from __future__ import annotations

import importlib.util
import sys

_NEEDED = ("typer", "rich")
_INTERRUPTED = 130


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
    except KeyboardInterrupt:  # while it is still importing
        raise SystemExit(_INTERRUPTED) from None


if __name__ == "__main__":
    main()
