"""Runs one function of a benchmark in this process: `python -m benchmarks.apart MODULE:FUNCTION LOOP JSON`.

The arguments are JSON; `-` reads them from standard input.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import sys

import uvloop

if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    module, _, function = sys.argv[1].partition(":")
    called = getattr(importlib.import_module(module), function)
    run = {"uvloop": uvloop.run, "asyncio": asyncio.run}[sys.argv[2]]
    arguments = sys.stdin.read() if sys.argv[3] == "-" else sys.argv[3]
    print(json.dumps(run(called(**json.loads(arguments)))))
