"""Fuzzes every decoder: `python -m tests.security.fuzz [SECONDS_EACH]`, or `make fuzz`.

The property tests of test_decoders.py and test_nesting.py are driven with coverage guidance by atheris, each in a process
of its own; where atheris is not installed, hypothesis alone runs them with many examples, and this says so.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

_SECONDS_EACH = 60
_EXAMPLES_A_SECOND = 300


def main(arguments: list[str]) -> int:
    """Runs all targets, or the one that is named behind the seconds; returns 1 where one of them failed."""
    seconds = int(arguments[0]) if arguments else _SECONDS_EACH
    if arguments[1:]:
        fuzz(arguments[1], seconds)
        return 0
    guided = importlib.util.find_spec("atheris") is not None
    print("atheris guides" if guided else "atheris is not installed: hypothesis alone", flush=True)
    failed = [name for name in targets() if not (run_apart(name, seconds) if guided else run_here(name, seconds))]
    print(f"{len(targets())} decoders, {seconds} s each; failed: {', '.join(failed) or 'none'}")
    return 1 if failed else 0


def targets() -> dict[str, Any]:
    """The property tests of decoders, by name."""
    from . import test_decoders, test_nesting

    every = vars(test_decoders) | vars(test_nesting)
    return {name: test for name, test in every.items() if name.startswith("test_") and hasattr(test, "hypothesis")}


def run_apart(name: str, seconds: int) -> bool:
    """Fuzzes one target in a process of its own, which libFuzzer ends."""
    print(f"{name} …", flush=True)
    command = [sys.executable, "-m", "tests.security.fuzz", str(seconds), name]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=seconds * 5 + 120)
    for line in done.stderr.splitlines()[-1:] if done.returncode == 0 else (done.stdout + done.stderr).splitlines()[-60:]:
        print(f"  {line}")
    return done.returncode == 0


def run_here(name: str, seconds: int) -> bool:
    """Runs one target with as many examples as `seconds` are likely to take."""
    from hypothesis import HealthCheck, settings

    print(f"{name} …", flush=True)
    checks = [HealthCheck.too_slow, HealthCheck.filter_too_much]
    more = settings(max_examples=seconds * _EXAMPLES_A_SECOND, deadline=None, suppress_health_check=checks, database=None)
    try:
        more(targets()[name])()
    except Exception as error:
        print(f"  {type(error).__name__}: {error}")
        return False
    return True


def fuzz(name: str, seconds: int) -> None:
    """Fuzzes one target; libFuzzer ends this process."""
    import atheris  # type: ignore[import-untyped, import-not-found, unused-ignore]

    with atheris.instrument_imports(include=["skillstream_schemas", "skillstream", "skillstream_router", "skillstream_worker"]):
        feed: Callable[[bytes], object] = targets()[name].hypothesis.fuzz_one_input
    # what made a target fail is in the output, in base64
    bounds = [
        f"-max_total_time={seconds}",
        "-max_len=4096",
        "-rss_limit_mb=1024",
        "-timeout=10",
        f"-artifact_prefix={tempfile.gettempdir()}/",
    ]
    atheris.Setup([sys.argv[0], *bounds], feed)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
