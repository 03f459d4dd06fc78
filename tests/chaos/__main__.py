"""`python -m tests.chaos [--seconds S] [--seed N] [--keep FOLDER]`: prints the seed first, counts and violations last."""

from __future__ import annotations

import argparse
import asyncio
import logging
import secrets
import shutil
import tempfile
from pathlib import Path

from .run import run


def main() -> int:
    """Runs; exits with 1 where a guarantee was violated."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--keep", type=Path, default=None, help="folder for the data and logs of a run that failed")
    arguments = parser.parse_args()
    seed = secrets.randbelow(10**9) if arguments.seed is None else arguments.seed
    print(f"seed: {seed}  seconds: {arguments.seconds:g}", flush=True)
    logging.basicConfig(level=logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="skillstream-chaos-") as folder:
        outcome = asyncio.run(run(seed, arguments.seconds, Path(folder)))
        print("\n".join(outcome.lines()))
        if outcome.violations and arguments.keep is not None:
            arguments.keep.mkdir(parents=True, exist_ok=True)
            for name, lines in outcome.log.items():
                (arguments.keep / f"{name}.log").write_text("\n".join(lines))
            shutil.copytree(folder, arguments.keep / "data", dirs_exist_ok=True)
    return 1 if outcome.violations else 0


if __name__ == "__main__":
    raise SystemExit(main())
