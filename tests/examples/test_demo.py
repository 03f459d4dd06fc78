"""The demo as a person runs it: to its end, interrupted, and with a part that does not start."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from examples.demo import as_redis_cli
from examples.processes import NotReadyError, process
from tests.support.redis_server import RedisServer, valkey_binary

ROOT = Path(__file__).parents[2]
BOUND_S = 40
DEMO = [sys.executable, "-m", "examples.demo"]


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the demo, and nobody else, makes its temporary folders."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def test_the_demo_runs_to_its_end_and_leaves_nothing(temporary: Path) -> None:
    run = subprocess.run(DEMO, cwd=ROOT, capture_output=True, text=True, timeout=BOUND_S, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    assert len(re.findall(r"^\[(completed|input-required)\]", run.stdout, re.MULTILINE)) == 3
    assert re.search(r"^ 1\) 1\) \"0-1\"$", run.stdout, re.MULTILINE)
    assert "# Draft 2: parsing of headers in email" in run.stdout
    # 0.05 and 0.02 USD for what completed, nothing for the draft that asked back; 95 : 5
    for account, balance in (("payer:acme", -70_000), ("agent:librarian", 66_500), ("platform", 3_500)):
        assert re.search(rf"^  {account} +{balance}$", run.stdout, re.MULTILINE)
    assert not [pid for pid in re.findall(r"process (\d+), ready", run.stdout) if Path("/proc", pid).exists()]
    assert not [*temporary.iterdir()]


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_ends_what_it_started(temporary: Path, stop: signal.Signals) -> None:
    with subprocess.Popen(DEMO, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        pids: list[str] = []
        for line in demo.stdout:
            pids += re.findall(r"process (\d+), ready", line)
            if line.startswith("2. "):
                break
        assert len(pids) == 2
        demo.send_signal(stop)
        _, errors = demo.communicate(timeout=BOUND_S)
    assert demo.returncode == 1
    assert errors.strip() == "interrupted: everything that was started has ended"
    assert not [pid for pid in pids if Path("/proc", pid).exists()]
    assert not [*temporary.iterdir()]


async def test_a_process_that_ends_early_is_told_with_its_last_words() -> None:
    command = [sys.executable, "-c", "print('no such file'); raise SystemExit(3)"]
    with pytest.raises(NotReadyError, match=r"not_ready: the part ended with 3:\nno such file"):
        async with process("part", command, " is ready"):
            pytest.fail("it never was ready")


async def test_a_process_runs_while_it_is_needed_and_hears_of_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    code = "import os, signal; print(os.environ['WORD'], 'is ready', flush=True); signal.pause()"
    async with process("part", [sys.executable, "-c", code], "it is ready", WORD="it"):
        pid = int(re.findall(r"process (\d+)", capsys.readouterr().out)[0])
        os.kill(pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.skipif(shutil.which("redis-cli") is None, reason="needs redis-cli on PATH to compare with")
def test_the_layout_without_redis_cli_is_that_of_redis_cli() -> None:
    with RedisServer(valkey_binary()) as server, server.client() as client:
        for number in range(1, 12):
            client.xadd("s", {"type": "chunk", "text": f'"Größe"\n\t\\ {number}'}, id=f"1-{number}")
        client.xadd("s", {f"field{at}": "x" for at in range(6)}, id="1-20")
        entries: Any = client.xrange("s")
        command = ["redis-cli", "-p", str(server.port), "--no-raw", "XRANGE", "s", "-", "+"]
        printed = subprocess.run(command, capture_output=True, text=True, timeout=BOUND_S, check=True).stdout
    assert list(as_redis_cli(entries)) == printed.splitlines()
