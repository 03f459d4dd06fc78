"""Spans of a workflow's run."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from skillstream_schemas.errors import MissingExtra

if TYPE_CHECKING:
    from opentelemetry.trace import Span


class Tracing:
    """Responsible for OpenTelemetry spans, through whatever tracer provider the process has set up.

    Raises MissingExtra where tracing is asked for and opentelemetry-api is not installed.
    """

    def __init__(self, *, enabled: bool) -> None:
        self.enabled = enabled
        if enabled:
            try:
                from opentelemetry import trace
            except ImportError:
                raise MissingExtra("enable_tracing needs opentelemetry-api", extra="pydantic-ai") from None
            self._tracer = trace.get_tracer("skillstream")

    def span(self, name: str, traceparent: str | None = None) -> AbstractContextManager[Span | None]:
        """A span that is the current one within the block, and records what the block raises.

        `traceparent` is that of whoever asked (W3C Trace Context); without it the span belongs to the current one.
        """
        if not self.enabled:
            return nullcontext()
        from opentelemetry import propagate

        parent = None if traceparent is None else propagate.extract({"traceparent": traceparent})
        return self._tracer.start_as_current_span(name, context=parent)


def trace_id_of(span: Span | None) -> str | None:
    """The trace id of a span in hexadecimal, as it stands in a traceparent; None where nobody records."""
    context = None if span is None else span.get_span_context()
    return f"{context.trace_id:032x}" if context is not None and context.is_valid else None
