"""Answers that are given before there is a request, or instead of one."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus

from skillstream_schemas.errors import SkillstreamError

from .failures import answer


def refusal_bytes(error: SkillstreamError, path: str, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A whole HTTP/1.1 answer that ends its connection; `headers` come with all answers."""
    response = answer(error, path)
    status = response.status_code
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}".encode()]
    lines += [name + b": " + value for name, value in (*headers, *response.raw_headers, (b"connection", b"close"))]
    return b"\r\n".join((*lines, b"", bytes(response.body)))
