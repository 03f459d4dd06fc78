"""What must hold for the stream of an ended task, read as plain entries: order, fences, attempts, text."""

from __future__ import annotations

from itertools import pairwise

from .report import Entry, Report

FINALS = {"completed", "failed", "canceled", "input-required"}
ROLES = {"router", "canceller"}
"""Who ends a task without a claim on its job."""
_CLOCK_US = 5_000


def check_stream(task_id: str, entries: list[Entry], report: Report, lease_ms: int = 0) -> None:
    """Checks one task; `lease_ms` is the workers' lease, 0 where it is not known."""
    finals = [number for number, (_, fields) in enumerate(entries) if fields.get("type") == "final"]
    report.expect(len(finals) == 1, f"{task_id}: {len(finals)} finals")
    if len(finals) != 1:
        return
    report.expect(finals[0] == len(entries) - 1, f"{task_id}: something follows the final")
    report.expect(entries[0][0] == (0, 1), f"{task_id}: begins with {entries[0][0]}")
    for (before, _), (after, _) in pairwise(entries):
        dense = after in ((before[0], before[1] + 1), (before[0] + 1, 1))
        report.expect(dense, f"{task_id}: {after} after {before}")
    _check_attempts(task_id, entries, report, lease_ms)
    _check_final(task_id, entries, report)


def text_of(entries: list[Entry]) -> tuple[str, bool, int]:
    """The text of the last attempt with what it kept, whether it kept any of it, and how many chunks are its own."""
    text, resumed, chunks = "", False, 0
    for (attempt, seq), fields in entries:
        if seq == 1 and attempt > 0:
            text = text[: int(fields.get("resume_from", 0))]
            resumed, chunks = "resume_from" in fields, 0
        if fields["type"] == "chunk" and "text" in fields:
            text += fields["text"]
            chunks += 1
    return text, resumed, chunks


def attempts_of(entries: list[Entry]) -> list[list[Entry]]:
    """The entries of each attempt, without the submission."""
    numbers = sorted({attempt for (attempt, _), _ in entries if attempt > 0})
    return [[entry for entry in entries if entry[0][0] == number] for number in numbers]


def _check_final(task_id: str, entries: list[Entry], report: Report) -> None:
    final = entries[-1][1]
    report.states[final["state"]] += 1
    report.ends[f"failed:{final.get('error')}" if final["state"] == "failed" else final["state"]] += 1
    report.expect(final["state"] in FINALS, f"{task_id}: final with state {final['state']}")
    text, resumed, chunks = text_of(entries)
    report.chunks += chunks
    report.expect(int(final["chunks"]) == chunks, f"{task_id}: final counts {final['chunks']} chunks of {chunks}")
    if chunks or resumed:
        report.expect(final["text"] == text, f"{task_id}: the final's text is not what its chunks say")


def _check_attempts(task_id: str, entries: list[Entry], report: Report, lease_ms: int) -> None:
    attempts = attempts_of(entries)
    request = entries[0][1]
    most = int(request.get("max_attempts", 3))
    report.retries += max(0, sum(not is_closing(attempt) for attempt in attempts) - 1)
    for attempt in attempts:
        opening = attempt[0][1]
        report.expect("claim" in opening, f"{task_id}: attempt {attempt[0][0][0]} begins without an opening")
        report.expect(all("claim" not in fields for _, fields in attempt[1:]), f"{task_id}: an opening inside an attempt")
        handed_back = [number for number, (_, fields) in enumerate(attempt) if "handed_back" in fields]
        report.expect(handed_back in ([], [len(attempt) - 1]), f"{task_id}: something follows a hand-back")
        report.expect(int(opening["strikes"]) <= most, f"{task_id}: strike {opening['strikes']} of {most} attempts")
        resumes = "resume_from" in opening
        may_resume = request.get("on_retry") == "resume" or is_closing(attempt)
        report.expect(may_resume or not resumes, f"{task_id}: attempt {attempt[0][0][0]} resumes, which was not asked for")
    for before, after in pairwise(attempts):
        _check_succession(task_id, before, after, report, lease_ms)
    if request.get("on_retry") == "fail":
        runs = sum(not is_closing(attempt) and attempt[-1][1].get("handed_back") != "elsewhere" for attempt in attempts)
        report.expect(runs <= 1, f"{task_id}: ran {runs} times though it must never run twice")


def _check_succession(task_id: str, before: list[Entry], after: list[Entry], report: Report, lease_ms: int) -> None:
    older, newer = before[0][1], after[0][1]
    gap_us = int(newer["claim"]) - int(older["claim"])
    number = after[0][0][0]
    report.expect(gap_us > 0, f"{task_id}: attempt {number} has a claim {-gap_us} µs older than the attempt before")
    handed_back = before[-1][1].get("handed_back")
    if not handed_back and newer["worker"] not in ROLES:
        # a lease is not given to another before it ends, and the claim is the moment at which it was given
        took = gap_us < lease_ms * 1000 - _CLOCK_US
        report.expect(not took, f"{task_id}: attempt {number} took a lease that was held ({gap_us // 1000} ms old)")
    same = handed_back in ("drain", "elsewhere") or is_closing(after)
    strikes, following = int(older["strikes"]), int(newer["strikes"])
    right = following == strikes + 1 or (same and following == strikes)
    report.expect(right, f"{task_id}: strike {following} after strike {strikes}")


def is_closing(attempt: list[Entry]) -> bool:
    """True where nobody ran a skill: an opening and the final, from outside or from a worker that may not run it again."""
    last = attempt[-1][1]
    return len(attempt) == 2 and last.get("type") == "final" and last["chunks"] == "0" and last["state"] in ("failed", "canceled")
