"""What must hold between what was asked for and heard, and what stands on the stream."""

from __future__ import annotations

from .order import Order
from .report import Entry, Report
from .stream_rules import ROLES, attempts_of, text_of

_FULL = {"completed", "input-required"}


def check_order(order: Order, entries: list[Entry], report: Report) -> None:
    """Checks one ended task against its order."""
    request, (final_id, final) = entries[0][1], entries[-1]
    name = f"{order.task_id} ({order.skill})"
    for field in ("skill", "message", "payer", "context_id"):
        report.expect(request.get(field) == getattr(order, field), f"{name}: {field} is not what was asked for")
    if final.get("type") != "final":
        return
    end = f"failed:{final.get('error')}" if final["state"] == "failed" else final["state"]
    report.expect(end in order.finals, f"{name}: ended as {end} ({final.get('reason')}), not as {sorted(order.finals)}")
    if final["state"] == "canceled":
        report.expect(final.get("reason") in order.cancel_reasons, f"{name}: canceled for a reason that nobody gave")
    told = "{}-{}".format(*final_id)
    report.expect(set(order.answered) <= {told}, f"{name}: cancellations were answered with {set(order.answered)}, not {told}")
    _check_text(name, order, final, report)
    _check_delay(name, order, entries, report)
    _check_follower(name, order, entries, report)


def _check_text(name: str, order: Order, final: dict[str, str], report: Report) -> None:
    if order.text is None:
        return
    if final["state"] in _FULL:
        report.expect(final["text"] == order.text, f"{name}: said {final['text'][:60]!r}, not {order.text[:60]!r}")
    else:
        report.expect(order.text.startswith(final["text"]), f"{name}: {final['text'][:60]!r} is no beginning of its text")


def _check_delay(name: str, order: Order, entries: list[Entry], report: Report) -> None:
    for attempt in attempts_of(entries)[:1]:
        opening = attempt[0][1]
        waited_ms = int(opening["at"]) - int(entries[0][1]["at"])
        early = waited_ms < order.delay_ms and opening["worker"] not in ROLES
        report.expect(not early, f"{name}: started after {waited_ms} of {order.delay_ms} ms")


def _check_follower(name: str, order: Order, entries: list[Entry], report: Report) -> None:
    if order.followed is None:
        return
    report.followed += 1
    ids = ["{}-{}".format(*event_id) for event_id, _ in entries]
    report.expect(order.followed == ids, f"{name}: a follower was given {len(order.followed)} events, {len(ids)} are there")
    text = text_of(entries)[0]
    report.expect(order.followed_text == text, f"{name}: a follower put another text together than the chunks say")
