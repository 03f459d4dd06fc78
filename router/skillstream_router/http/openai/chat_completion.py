"""Chat completions: whole, and as chunks of a stream."""

from __future__ import annotations

from json.encoder import encode_basestring as quoted
from typing import Any

from skillstream_router.http.failures import shown, status_of
from skillstream_schemas.errors import FailureCode, SkillstreamError
from skillstream_schemas.event import FinalEvent, StatusEvent
from skillstream_schemas.ids import EventId
from skillstream_schemas.json_text import json_text
from skillstream_schemas.state import TaskState

from .error_shape import error_body, run_error
from .text_face import TextFace, spoken_text
from .usage import completion_usage

_DONE = "data: [DONE]\n\n"


def finish_reason(final: FinalEvent) -> str | None:
    """Why a completion ended; None for a run that failed. A question back to the user ends it as an answer does."""
    if final.state in (TaskState.COMPLETED, TaskState.INPUT_REQUIRED):
        return "stop"
    return "length" if final.error == FailureCode.OUTPUT_TOO_LARGE else None


def completion(task_id: str, model: str, created_s: int, final: FinalEvent, finish: str) -> dict[str, Any]:
    """The completion of a run that ended."""
    message = {"role": "assistant", "content": spoken_text(final), "refusal": None}
    whole: dict[str, Any] = {
        "id": f"chatcmpl-{task_id}", "object": "chat.completion", "created": created_s, "model": model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish}],
    }  # fmt: skip
    if (usage := completion_usage(final.usage)) is not None:
        whole["usage"] = usage
    return whole


class ChatFace(TextFace):
    """Responsible for a run as `chat.completion.chunk`s, without `id:` and `retry:`, which OpenAI's clients trip over."""

    def __init__(self, task_id: str, model: str, created_s: int, *, settled: int, usage: bool, progress: bool) -> None:
        super().__init__(settled=settled, progress=progress)
        head = {"id": f"chatcmpl-{task_id}", "object": "chat.completion.chunk", "created": created_s, "model": model}
        self._head = f"data: {json_text(head)[:-1]}"
        self._tail = ',"usage":null}\n\n' if usage else "}\n\n"
        self._usage = usage
        # all of a chunk but its text is the same each time
        self._before = f'{self._head},"choices":[{{"index":0,"delta":{{"content":'
        self._after = f'}},"logprobs":null,"finish_reason":null}}]{self._tail}'

    def failure(self, error: SkillstreamError) -> bytes:
        """An error, and no `[DONE]`: a cut answer must not pass for a whole one."""
        told = shown(error)
        return self._error(error_body(status_of(error), told["code"], told["message"])).encode()

    def _submitted(self) -> str:
        return self._chunk({"role": "assistant", "content": ""}, None)

    def _delta(self, place: EventId, text: str) -> str:
        return f"{self._before}{quoted(text)}{self._after}"

    def _status(self, status: StatusEvent) -> str:
        said = status.model_dump(mode="json", include={"text", "progress", "metadata"}, exclude_none=True)
        return f'{self._head},"choices":[],"skillstream":{json_text({"type": "status", **said})}{self._tail}'

    def _final(self, final: FinalEvent, rest: str) -> str:
        told = self._delta(final.id, rest) if rest else ""
        finish = finish_reason(final)
        if finish is None:
            return told + self._error(run_error(final))
        told += self._chunk({}, finish)
        usage = completion_usage(final.usage) if self._usage else None
        if usage is not None:
            told += f'{self._head},"choices":[],"usage":{json_text(usage)}}}\n\n'
        return told + _DONE

    def _chunk(self, delta: dict[str, str], finish: str | None) -> str:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return f'{self._head},"choices":[{json_text(choice)}]{self._tail}'

    @staticmethod
    def _error(body: dict[str, Any]) -> str:
        return f"data: {json_text({'error': body})}\n\n"
