"""Opening an attempt (rules P4, P11): each outcome of the script, and how strikes are counted."""

from __future__ import annotations

from typing import Any

import pytest

from skillstream_schemas import keys as arq_keys
from skillstream_schemas.ids import EventId
from skillstream_schemas.request import OnRetry
from skillstream_worker.broker import Lease
from skillstream_worker.openings import AlreadyFinal, CloseCause, Gone, MustClose, MustRead, Opened, Opening, Stale, Superseded
from tests.support.protocol_bench import AGENT, FINAL_FIELDS, ProtocolBench, a_request

TASK = "t1"


async def open_it(bench: ProtocolBench, lease: Lease, **options: Any) -> Opening:
    return await (await bench.broker(lease.worker)).open_attempt(lease, options.pop("stock", None), **options)


async def next_lease(bench: ProtocolBench, worker: str = "w2") -> Lease:
    """Another worker's lease, once the one before has lapsed."""
    bench.lapse(TASK)
    return await bench.claimed(TASK, worker)


def unchanged(bench: ProtocolBench, before: list[Any]) -> None:
    assert bench.entries(TASK) == before


async def test_the_first_opening(bench: ProtocolBench) -> None:
    await bench.submitted(TASK, on_retry=OnRetry.RESUME, max_attempts=5)
    lease = await bench.claimed(TASK)
    bench.outside.pexpire(bench.keys.events(TASK), 60_000)
    opening = await open_it(bench, lease)
    assert opening == Opened(1, 1, a_request(on_retry=OnRetry.RESUME, max_attempts=5), None)
    event_id, fields = bench.entries(TASK)[-1]
    assert event_id == "1-1"
    assert abs(int(fields.pop("at")) - bench.server_ms()) < 5000
    assert fields == {"type": "status", "state": "working", "worker": "w1", "claim": str(lease.claim), "strikes": "1"}
    assert bench.rings(TASK) == [{"kind": "submitted"}, {"kind": "opened"}]
    assert bench.outside.pttl(bench.keys.events(TASK)) > 60_000


async def test_an_opening_repeated_after_a_lost_answer_is_the_same_attempt(bench: ProtocolBench) -> None:
    lease, _ = await bench.opened(TASK)
    bench.add(TASK, "1-2", text="on the way")
    before = bench.entries(TASK)
    assert await open_it(bench, lease) == Opened(1, 1, a_request(), None)
    unchanged(bench, before)
    assert bench.rings(TASK) == [{"kind": "submitted"}, {"kind": "opened"}]


async def test_a_repeated_opening_tells_of_a_cancellation(bench: ProtocolBench) -> None:
    lease, _ = await bench.opened(TASK)
    await (await bench.broker()).request_cancel(TASK, "enough")
    assert await open_it(bench, lease) == Opened(1, 1, a_request(), "enough")


@pytest.mark.guarantee("G4")
async def test_an_older_claim_is_superseded(bench: ProtocolBench) -> None:
    old, _ = await bench.opened(TASK)
    new = await next_lease(bench)
    assert await bench.opened_by(new) == 2
    before = bench.entries(TASK)
    assert await open_it(bench, old) == Superseded()
    assert await open_it(bench, old, seen=EventId(2, 1)) == Superseded()
    unchanged(bench, before)


@pytest.mark.guarantee("G2")
async def test_a_task_with_a_final_is_not_opened(bench: ProtocolBench) -> None:
    lease, _ = await bench.opened(TASK)
    broker = await bench.broker()
    assert (await broker.finish(lease, EventId(1, 1), FINAL_FIELDS)).at
    before = bench.entries(TASK)
    fields = before[-1][1]
    for late in (lease, await next_lease(bench)):
        assert await open_it(bench, late) == AlreadyFinal(fields)
        assert await open_it(bench, late, stock=a_request()) == AlreadyFinal(fields)
    unchanged(bench, before)


@pytest.mark.guarantee("G13")
async def test_a_final_that_is_no_text_is_a_final_as_well(bench: ProtocolBench) -> None:
    lease, _ = await bench.opened(TASK)
    bench.add(TASK, "1-2", type="final", state="completed")
    bench.outside.xdel(bench.keys.events(TASK), "1-2")
    bench.outside.xadd(bench.keys.events(TASK), {"type": "final", "text": b"\xff"}, id="1-3")
    opening = await open_it(bench, lease)
    assert opening == AlreadyFinal({"type": "final", "text": "\ufffd"})


@pytest.mark.guarantee("G1")
async def test_a_task_of_ours_without_a_stream_is_gone_and_the_router_is_told(bench: ProtocolBench) -> None:
    await bench.submitted(TASK)
    lease = await bench.claimed(TASK)
    bench.outside.delete(bench.keys.events(TASK), bench.keys.inbox_of(TASK))
    assert await open_it(bench, lease) == Gone()
    assert bench.entries(TASK) == []
    assert bench.rings(TASK) == [{"kind": "gone", "agent": AGENT}]


async def test_the_request_of_a_stock_client_becomes_the_submission(bench: ProtocolBench) -> None:
    await bench.submitted(TASK)
    lease = await bench.claimed(TASK)
    bench.outside.delete(bench.keys.events(TASK), bench.keys.inbox_of(TASK))
    request = a_request(message="von außen", metadata={"a": [1]}, payer="acme")
    assert await open_it(bench, lease, stock=request) == Opened(1, 1, request, None)
    first, opening = bench.entries(TASK)
    assert first[0] == "0-1"
    assert {"type": "status", "state": "submitted", "v": "1", **request.to_fields()} == {
        name: value for name, value in first[1].items() if name != "at"
    }
    assert opening[0] == "1-1"
    assert bench.rings(TASK) == [{"kind": "opened"}]
    assert bench.outside.pttl(bench.keys.events(TASK)) > 0
    # repeated, and by another worker later: the submission that stands there counts
    assert await open_it(bench, lease, stock=a_request(message="another")) == Opened(1, 1, request, None)
    assert await open_it(bench, await next_lease(bench), stock=request) == Opened(2, 2, request, None)
    assert bench.ids(TASK) == ["0-1", "1-1", "2-1"]


@pytest.mark.parametrize("delay_ms", [0, 86_400_000 * 30])
async def test_opening_never_shortens_expiry(bench: ProtocolBench, delay_ms: int) -> None:
    await bench.submitted(TASK)
    lease = await bench.claimed(TASK)
    ttl_ms = int(bench.settings.stream_ttl_s * 1000) + delay_ms
    bench.outside.pexpire(bench.keys.events(TASK), ttl_ms)
    await open_it(bench, lease)
    assert bench.outside.pttl(bench.keys.events(TASK)) > ttl_ms - 60_000


@pytest.mark.parametrize(
    ("entries", "seen", "is_stale"),
    [
        (["1-2"], EventId(1, 2), False),
        (["1-2", "1-3"], EventId(1, 2), False),  # the older attempt said more since: what was read is still kept
        (["1-2"], EventId(1, 3), True),  # the broker went back
        (["1-2"], EventId(0, 1), True),
        (["1-2"], EventId(2, 1), True),
        (["1-2", "1-10"], EventId(1, 9), False),  # ids are numbers
        (["1-9"], EventId(1, 10), True),
    ],
)
async def test_what_was_read_must_still_be_true(bench: ProtocolBench, entries: list[str], seen: EventId, is_stale: bool) -> None:
    await bench.opened(TASK, on_retry=OnRetry.RESUME)
    for event_id in entries:
        bench.add(TASK, event_id, type="chunk", text="ab")
    before = bench.entries(TASK)
    opening = await open_it(bench, await next_lease(bench), seen=seen, keep=2)
    if is_stale:
        assert opening == Stale()
        unchanged(bench, before)
    else:
        assert opening == Opened(2, 2, a_request(on_retry=OnRetry.RESUME), None)
        assert bench.entries(TASK)[-1][1]["resume_from"] == "2"


async def test_an_attempt_that_resumes_reads_first(bench: ProtocolBench) -> None:
    await bench.opened(TASK, on_retry=OnRetry.RESUME)
    bench.add(TASK, "1-2", type="chunk", text="ab")
    before = bench.entries(TASK)
    lease = await next_lease(bench)
    assert await open_it(bench, lease) == MustRead(a_request(on_retry=OnRetry.RESUME))
    unchanged(bench, before)


async def test_nothing_kept_is_no_resume(bench: ProtocolBench) -> None:
    await bench.opened(TASK, on_retry=OnRetry.RESUME)
    opening = await open_it(bench, await next_lease(bench), seen=EventId(1, 1), keep=0)
    assert isinstance(opening, Opened)
    assert "resume_from" not in bench.entries(TASK)[-1][1]


@pytest.mark.guarantee("G9")
@pytest.mark.parametrize("began", [False, True])
async def test_a_canceled_task_is_to_be_closed(bench: ProtocolBench, began: bool) -> None:
    await (bench.opened(TASK) if began else bench.submitted(TASK))
    await (await bench.broker()).request_cancel(TASK, "genug")
    lease = await (next_lease(bench) if began else bench.claimed(TASK))
    before = bench.entries(TASK)
    top = EventId(1, 1) if began else EventId(0, 1)
    assert await open_it(bench, lease) == MustClose(CloseCause.CANCELED, top, a_request(), "genug")
    unchanged(bench, before)


async def test_a_cancellation_without_a_reason_is_one(bench: ProtocolBench) -> None:
    await bench.submitted(TASK)
    await (await bench.broker()).request_cancel(TASK, "")
    opening = await open_it(bench, await bench.claimed(TASK))
    assert opening == MustClose(CloseCause.CANCELED, EventId(0, 1), a_request(), "")


@pytest.mark.parametrize("handed_back", [None, "drain", "retry"])
async def test_a_skill_that_never_runs_twice_is_interrupted(bench: ProtocolBench, handed_back: str | None) -> None:
    await bench.opened(TASK, on_retry=OnRetry.FAIL)
    if handed_back:
        bench.add(TASK, "1-2", handed_back=handed_back)
    top = EventId(1, 2 if handed_back else 1)
    opening = await open_it(bench, await next_lease(bench))
    assert opening == MustClose(CloseCause.INTERRUPTED, top, a_request(on_retry=OnRetry.FAIL), "w1")


@pytest.mark.guarantee("G14")
async def test_lost_workers_and_retries_count_and_the_last_attempt_is_exhausted(bench: ProtocolBench) -> None:
    await bench.opened(TASK, max_attempts=3)  # its worker is lost
    assert await open_it(bench, await next_lease(bench)) == Opened(2, 2, a_request(), None)
    bench.add(TASK, "2-2", handed_back="retry")
    assert await open_it(bench, await next_lease(bench, "w3")) == Opened(3, 3, a_request(), None)
    before = bench.entries(TASK)
    opening = await open_it(bench, await next_lease(bench, "w4"))
    assert opening == MustClose(CloseCause.EXHAUSTED, EventId(3, 1), a_request(), "w3")
    unchanged(bench, before)


async def test_an_attempt_handed_back_by_a_drain_does_not_count(bench: ProtocolBench) -> None:
    await bench.opened(TASK, max_attempts=1)
    for attempt in range(1, 6):
        bench.add(TASK, f"{attempt}-2", handed_back="drain")
        lease = await next_lease(bench, f"w{attempt + 1}")
        assert await open_it(bench, lease) == Opened(attempt + 1, 1, a_request(max_attempts=1), None)
    opening = await open_it(bench, await next_lease(bench, "w9"))
    assert opening == MustClose(CloseCause.EXHAUSTED, EventId(6, 1), a_request(max_attempts=1), "w6")


@pytest.mark.parametrize("on_retry", OnRetry)
async def test_an_attempt_handed_to_a_worker_with_the_skill_does_not_count(bench: ProtocolBench, on_retry: OnRetry) -> None:
    """Nor does it end a skill that is never run twice: it has not run."""
    request = a_request(max_attempts=1, on_retry=on_retry)
    await bench.opened(TASK, max_attempts=1, on_retry=on_retry)
    bench.add(TASK, "1-2", handed_back="elsewhere")
    opening = await open_it(bench, await next_lease(bench))
    assert opening == (MustRead(request) if on_retry is OnRetry.RESUME else Opened(2, 1, request, None))


async def test_a_hand_back_that_is_not_the_last_word_does_not_count_as_one(bench: ProtocolBench) -> None:
    await bench.opened(TASK)
    bench.add(TASK, "1-2", handed_back="drain")
    assert await open_it(bench, await next_lease(bench)) == Opened(2, 1, a_request(), None)
    assert await open_it(bench, await next_lease(bench, "w3")) == Opened(3, 2, a_request(), None)


async def test_an_opening_leaves_the_queue_alone(bench: ProtocolBench) -> None:
    """One slot a script: the lease is renewed and the job settled elsewhere."""
    await bench.submitted(TASK)
    lease = await bench.claimed(TASK)
    scores, value = bench.queued(), bench.lease_value(TASK)
    await open_it(bench, lease)
    assert (bench.queued(), bench.lease_value(TASK)) == (scores, value)
    assert bench.outside.exists(arq_keys.job(arq_keys.job_id(AGENT, TASK))) == 1
