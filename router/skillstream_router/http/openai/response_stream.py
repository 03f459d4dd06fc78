"""Responses as server-sent events that can be taken up again behind any `sequence_number`."""

from __future__ import annotations

from json.encoder import encode_basestring as quoted
from typing import Any

from skillstream_router.http.failures import shown
from skillstream_schemas.errors import SkillstreamError
from skillstream_schemas.event import FinalEvent, StatusEvent
from skillstream_schemas.gateway_errors import AttemptRestarted
from skillstream_schemas.ids import SUBMISSION, EventId
from skillstream_schemas.json_text import json_text

from .response_object import ended, going_on, output_item, text_part
from .sequence import number_of
from .text_face import TextFace, spoken_text

_ENDS = {"completed": "response.completed", "incomplete": "response.incomplete"}


class ResponseFace(TextFace):
    """Responsible for a run as events of OpenAI's responses; those up to the number `after` are left out.

    `head` is the response as it was submitted. There is no event for a cancelled response: it ends as `response.failed`,
    whose response says `cancelled`.
    """

    def __init__(
        self, task_id: str, head: dict[str, Any], *, after: int = 0, given: int = 0, settled: int = 0, progress: bool = False
    ) -> None:
        super().__init__(given=given, settled=settled, progress=progress)
        self._task_id = task_id
        self._head = head
        self._told_to = after
        self._where = {"item_id": f"msg_{task_id}", "output_index": 0, "content_index": 0}
        # all of a delta but its number and text is the same each time
        kind = "response.output_text.delta"
        rest = json_text({"type": kind, **self._where, "logprobs": []})[:-1]
        self._before = f'event: {kind}\ndata: {rest},"sequence_number":'

    def failure(self, error: SkillstreamError) -> bytes:
        """The event `error`. Of a restarted attempt it has the opening's number, behind which the new text goes on."""
        restarted = isinstance(error, AttemptRestarted) and error.attempt > 0
        place = EventId(error.attempt, 1) if isinstance(error, AttemptRestarted) and restarted else self._place
        return self._event("error", max(number_of(place), self._told_to), {**shown(error), "param": None}).encode()

    def _delta(self, place: EventId, text: str) -> str:
        number = place.attempt << 32 | place.seq
        return f'{self._before}{number},"delta":{quoted(text)}}}\n\n'

    def _submitted(self) -> str:
        response = {"response": going_on(self._head, "in_progress")}
        item = {"output_index": 0, "item": output_item(self._task_id, "in_progress", None)}
        return self._events(
            SUBMISSION,
            ("response.created", {"response": going_on(self._head, "queued")}),
            ("response.in_progress", response),
            ("response.output_item.added", item),
            ("response.content_part.added", {**self._where, "part": text_part("")}),
        )

    def _status(self, status: StatusEvent) -> str:
        said = status.model_dump(mode="json", include={"text", "progress", "metadata"}, exclude_none=True)
        fields = {"response": going_on(self._head, "in_progress"), "skillstream": {"type": "status", **said}}
        return self._events(status.id, ("response.in_progress", fields))

    def _final(self, final: FinalEvent, rest: str) -> str:
        response = ended(self._head, self._task_id, final)
        whole = response["status"] == "completed"
        text = spoken_text(final)
        item = output_item(self._task_id, "completed" if whole else "incomplete", text)
        told = self._delta(final.id, rest) if rest and number_of(final.id) > self._told_to else ""
        return told + self._events(
            EventId(final.id.attempt, final.id.seq + 1),  # the rest of the text has the final's own number
            ("response.output_text.done", {**self._where, "text": text, "logprobs": []}),
            ("response.content_part.done", {**self._where, "part": text_part(text)}),
            ("response.output_item.done", {"output_index": 0, "item": item}),
            (_ENDS.get(response["status"], "response.failed"), {"response": response}),
        )

    def _events(self, place: EventId, *events: tuple[str, dict[str, Any]]) -> str:
        first, known = number_of(place), self._told_to
        self._told_to = max(known, first + len(events) - 1)
        numbered = enumerate(events, first)
        return "".join(self._event(kind, number, fields) for number, (kind, fields) in numbered if number > known)

    @staticmethod
    def _event(kind: str, number: int, fields: dict[str, Any]) -> str:
        return f"event: {kind}\ndata: {json_text({'type': kind, 'sequence_number': number, **fields})}\n\n"
