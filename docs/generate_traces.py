"""Writes docs/traces.md from the docstrings of tests/conformance: `python -m docs.generate_traces`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).with_name("traces.md")
_TESTS = Path(__file__).parents[1] / "tests" / "conformance"
_RULES = [f"P{number}" for number in range(1, 18)]
_DOCSTRING = re.compile(r"^(P\d+(?:, P\d+)*)\. (.+)", re.DOTALL)
_HEAD = """# Traces

Written by `python -m docs.generate_traces` from the tests in `tests/conformance`; a test holds it to that.

Each trace is a shortest way in which a looser protocol than that of [wire-format.md](wire-format.md#rules) breaks a
[guarantee](guarantees.md). It is played against the product on real servers: between each part and the server stands a proxy
that reads RESP (`seam.py`), and holds, loses, repeats, delays or refuses the one command that the trace is about; what came of
it is read with redis-py and sqlite3. `test_interleavings.py` looks for traces that nobody thought of: hypothesis takes the
product's steps in any order, makes an example that breaks an invariant as small as it gets, and prints its seed;
`make mutations` shows that it finds planted faults.

"""


class Trace(NamedTuple):
    """What a test plays: the rules that it is about, and the trace in words."""

    file: str
    test: str
    rules: tuple[str, ...]
    words: str


def traces() -> Iterator[Trace]:
    """All traces, file by file; the tests are parsed, not imported."""
    for path in sorted(_TESTS.glob("test_*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.AsyncFunctionDef) and node.name.startswith("test_"):
                found = _DOCSTRING.match(ast.get_docstring(node) or "")
                if found is not None:
                    words = " ".join(found[2].split())
                    yield Trace(path.stem, node.name, tuple(found[1].split(", ")), words)


def page() -> str:
    """The whole page."""
    known = list(traces())
    lines = ["| rule | tests (tests/conformance/…) |", "| --- | --- |"]
    for rule in _RULES:
        tests = [f"{trace.file}: `{trace.test}`" for trace in known if rule in trace.rules]
        lines.append(f"| {rule} | {'<br>'.join(tests)} |")
    lines += ["", "## In words", ""]
    lines += [f"- `{trace.test}` ({', '.join(trace.rules)}): {trace.words}" for trace in known]
    return _HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
