"""What an example of the state machine draws: how its task begins, whose step it is, what becomes of what is sent."""

from __future__ import annotations

import hypothesis.strategies as st

from skillstream_schemas.request import OnRetry

WRITING = ("take_over", "go_on", "go_on", "fetch", "commit")
STARTS: dict[str, tuple[str, ...]] = {
    "two claims wait, one has read": (*WRITING, "take", "take", "go_on", "go_on"),
    "half submitted": (),
    "writing": WRITING,
    "the router has read before and behind the end": (*WRITING, "finish", "fetch"),
    "a reader is about to close": (*WRITING, "read_to_end"),
}
"""How an example begins: what takes many steps to come to, so that the rest is spent on what may happen then."""
RETRIES = st.sampled_from([OnRetry.RESTART, OnRetry.FAIL, OnRetry.RESUME, OnRetry.RESTART])
BACK = st.sampled_from([0, 0, 1, 2, 0, 1])
FATES = ("answered", "answered", "answer lost", "on its way")
