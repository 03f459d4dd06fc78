"""Changes of structured content as JSON Patches (RFC 6902)."""

from __future__ import annotations

from typing import Any

from skillstream_schemas.errors import MissingExtra
from skillstream_schemas.workflow_errors import InvalidNodeOutput

Patch = list[dict[str, Any]]


def make_patch(before: Any, after: Any) -> Patch:
    """The operations that turn one JSON value into another; raises MissingExtra."""
    patch: Patch = _jsonpatch().make_patch(before, after).patch
    return patch


def apply_patch(before: Any, patch: Patch) -> Any:
    """The value behind the operations; `before` stays as it is. Raises InvalidNodeOutput, MissingExtra."""
    jsonpatch = _jsonpatch()
    try:
        return jsonpatch.apply_patch(before, patch)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException) as error:
        raise InvalidNodeOutput(f"a patch that a node yielded does not fit what it yielded before: {error}") from None


def _jsonpatch() -> Any:
    try:
        import jsonpatch
    except ImportError:
        raise MissingExtra("JSON Patches need jsonpatch", extra="pydantic-ai") from None
    return jsonpatch
