"""The benchmarks count and compare rightly, say what they leave out, and leave nothing behind."""

from __future__ import annotations

import json
import os
import time
from functools import partial
from pathlib import Path

import httpx
import pytest

from benchmarks import environments, table
from benchmarks.environments import Environments, NotInstalled
from benchmarks.measuring import Lab, Ratio, Report, Samples, Target, as_json, from_json, quantile
from benchmarks.processes import ProcessEnded, ProcessGroups, apart
from benchmarks.publishing import awaited
from benchmarks.results import Reference, Results
from benchmarks.server import running_server
from benchmarks.tellings import OurTelling, RunRefused

END_S = 30.0


def a_lab(rounds: int) -> Lab:
    return Lab(rounds, 1.0, False, Environments(print), print)


def a_report(value: float, *, better: str = "higher", unit: str = "×", target: Target | None = None) -> Report:
    return Report("speed", (), (Ratio("tasks/s", "a peer", (value,), unit, target, better),))


def has_ended(pid: int) -> bool:
    """True for a process that is gone, or waits for its adopted parent to take note."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (ProcessLookupError, FileNotFoundError):
        return True


def test_contenders_take_turns_and_ratios_are_of_one_round() -> None:
    order: list[str] = []
    values = {"ours": iter((10.0, 30.0)), "theirs": iter((5.0, 10.0))}

    def measure(name: str) -> dict[str, float]:
        order.append(name)
        return {"rate": next(values[name])}

    samples = a_lab(2).alternate({name: partial(measure, name) for name in values}, required=["ours"])
    assert order == ["ours", "theirs", "ours", "theirs"]
    assert [ratio.samples for ratio in samples.ratio("x", "ours", "theirs", figure="rate")] == [(2.0, 3.0)]


def test_a_peer_that_fails_is_left_out_and_named() -> None:
    def fail() -> dict[str, float]:
        raise NotInstalled("no such version")

    samples = a_lab(2).alternate({"ours": lambda: {"rate": 1.0}, "theirs": fail}, required=["ours"])
    assert samples.notes == ("theirs was left out: no such version",)
    assert not list(samples.ratio("x", "ours", "theirs", figure="rate"))
    assert [figure.contender for figure in samples.figures("rate", "")] == ["ours"]


def test_a_failure_of_our_own_is_none_of_a_peer() -> None:
    def fail() -> dict[str, float]:
        raise ProcessEnded("the worker ended")

    with pytest.raises(ProcessEnded):
        a_lab(1).alternate({"ours": fail}, required=["ours"])


@pytest.mark.parametrize(("share", "expected"), [(0.5, 50), (0.99, 99), (1.0, 100), (0.0, 1)])
def test_quantiles_are_values_that_were_measured(share: float, expected: float) -> None:
    assert quantile([float(value) for value in range(100, 0, -1)], share) == expected


@pytest.mark.parametrize(
    ("before", "now", "better", "unit", "fell"),
    [
        (10, 8.0, "higher", "×", True), (10, 8.1, "higher", "×", False), (10, 20, "higher", "×", False),
        (10, 12.0, "lower", "×", True), (10, 11.9, "lower", "×", False), (10, 5, "lower", "×", False),
        (10, 1, "higher", "tokens/s", False), (0, 0, "lower", "", False), (0, 1, "lower", "", True),
    ],
)  # fmt: skip
def test_what_fell_by_a_fifth_is_reported(tmp_path: Path, before: float, now: float, better: str, unit: str, fell: bool) -> None:
    reference = Reference(tmp_path / "reference.json")
    assert reference.fallen([a_report(now)]) is None
    reference.keep([a_report(before, better=better), Report("other", (), (Ratio("kept", "", (1.0,)),))], {})
    assert bool(reference.fallen([a_report(now, better=better, unit=unit)])) is fell


def test_only_whole_runs_are_shown(tmp_path: Path) -> None:
    results = Results(tmp_path)
    for value, is_whole in ((1.0, True), (2.0, True), (3.0, False)):
        results.add(a_report(value), {}, command="python -m benchmarks", is_whole=is_whole)
    ((report, line),) = results.latest(["speed", "never run"]).values()
    assert (report, line["command"]) == (a_report(2.0), "python -m benchmarks")


def test_a_report_is_kept_as_it_was() -> None:
    samples = Samples({"ours": {"rate": [1.0, 2.0]}}, {"theirs": "no such version"})
    ratios = tuple(samples.value("rate", "ours", "rate", unit="", target=Target(1, is_ceiling=True)))
    report = Report("speed", tuple(samples.figures("rate", "/s")), ratios, samples.notes)
    assert from_json(as_json(report)) == report


def test_the_table_stands_between_its_markers(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n")
    machine = {"cores": 2, "memory_gib": 4, "system": "Linux", "python": "3", "broker": "V", "packages": {}, "peers": {}}
    line = {"machine": machine, "command": "python -m benchmarks", "at": "2026-01-01T00:00:00Z"}
    for _ in range(2):
        table.write_table({"speed": (a_report(2.0, target=Target(4)), line)}, page)
    text = page.read_text()
    assert "| tasks/s | a peer | 2.00 × | ≥ 4.00 | **missed** |" in text
    assert (text.count(table.BEGIN), text.count(table.END), "old" in text) == (1, 1, False)
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    page.write_text("no markers")
    with pytest.raises(ValueError, match="lacks the line"):
        table.write_table({}, page)


def test_the_page_of_the_project_has_the_markers() -> None:
    text = table.PAGE.read_text()
    assert (text.count(table.BEGIN), text.count(table.END)) == (1, 1)


def test_commands_inside_scripts_are_not_sent_ones() -> None:
    with running_server() as server:
        before = server.counts()
        with server.commands_sent() as sent:
            server.client.eval("for i = 1, 10 do redis.call('SET', KEYS[1], i) end", 1, "key")
            with server.client.pipeline(transaction=True) as pipeline:
                pipeline.set("key", "a value\nof two lines").execute()
        executed = server.counts().since(before).calls
    assert sent == {"eval": 1, "multi": 1, "set": 1, "exec": 1}
    assert (executed["set"], executed["eval"]) == (11, 1)


def sent(*events: dict[str, object]) -> bytes:
    return b"".join(b"id: %s\ndata: %s\n\n" % (str(event["id"]).encode(), json.dumps(event).encode()) for event in events)


@pytest.mark.parametrize(
    ("keep", "behind", "held", "lost", "doubled"),
    [
        (6, "t2 ", "t0 t1 t2 ", 0, 0),
        (0, "t0 t1 t2 ", "t0 t1 t2 ", 0, 0),
        (6, "t1 ", "t0 t1 t1 ", 1, 1),
        (3, "t2 ", "t0 t2 ", 1, 0),
    ],
)
async def test_what_a_client_lacks_or_has_twice_is_counted(keep: int, behind: str, held: str, lost: int, doubled: int) -> None:
    asked: list[str | None] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.headers.get("last-event-id"))
        if len(asked) == 1:
            body = sent({"id": "1-2", "type": "chunk", "text": "t0 "}, {"id": "1-3", "type": "chunk", "text": "t1 "})
        else:
            body = b'data: {"type": "reset", "attempt": 2, "keep": %d}\n\n' % keep
            body += sent(
                {"id": "2-2", "type": "chunk", "text": behind}, {"id": "2-3", "type": "final", "state": "completed", "text": held}
            )
        return httpx.Response(200, headers={"x-task-id": "t"}, content=body)

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://gateway") as http:
        telling = OurTelling(http, 3, 0.0, "tell")
        with pytest.raises(RunRefused, match="without the run's end"):
            assert not [piece async for piece in telling.begin() if piece not in ("t0 ", "t1 ")]
        assert [piece async for piece in telling.come_back()] == [behind]
    assert asked == [None, "1-3"]
    assert (telling.text, telling.lost, telling.doubled, telling.finals) == (held, lost, doubled, 1)


def test_a_function_runs_in_a_process_of_its_own() -> None:
    with running_server() as server:
        assert apart(awaited, url=server.url, events=10) > 0
        assert server.client.xlen("stream:0") == 10
        with pytest.raises(ProcessEnded, match="awaited ended with 1"):
            apart(awaited, url=server.url)


def test_processes_end_with_what_they_started(tmp_path: Path) -> None:
    with ProcessGroups() as processes:
        child = processes.start(["sh", "-c", "sleep 60 & echo $! > " + str(tmp_path / "pid") + "; wait"], tmp_path / "log")
        give_up_s = time.monotonic() + END_S
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
            assert time.monotonic() < give_up_s
            time.sleep(0.01)
    assert child.poll() is not None
    give_up_s = time.monotonic() + END_S
    while not has_ended(int((tmp_path / "pid").read_text())):  # it has been killed, and takes note of it
        assert time.monotonic() < give_up_s
        time.sleep(0.01)


def test_a_peer_that_cannot_be_installed_leaves_no_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setitem(environments.PINS, "nobody", ("./there-is-no-such-package",))
    peers = Environments(said.append, tmp_path / "bench")
    for _ in range(2):
        with pytest.raises(NotInstalled):
            peers.python("nobody")
    assert not (tmp_path / "bench" / "nobody").exists()
    assert len(said) == 2, "it is tried once in a run"
