"""Runs the workflow of examples/streaming_workflow.py with a tracer provider, and prints its spans as JSON."""

from __future__ import annotations

import asyncio
import json

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import examples.offline_models  # noqa: F401
from examples.streaming_workflow import MyStreamingWorkflow
from skillstream_worker.workflows import TaskContext
from skillstream_worker.workflows.tracing import Tracing, trace_id_of

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def main() -> None:
    """One run."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    context = TaskContext()
    event = {"messages": [{"role": "user", "content": "what makes tides"}]}
    async for _ in MyStreamingWorkflow(enable_tracing=True).run_stream_async(event, context):
        pass
    spans = exporter.get_finished_spans()
    names = {span.context.span_id: span.name for span in spans if span.context}
    told = [
        {
            "name": span.name,
            "parent": names[span.parent.span_id] if span.parent else None,
            "trace_id": f"{span.context.trace_id:032x}" if span.context else None,
        }
        for span in spans
    ]
    with Tracing(enabled=True).span("asked from elsewhere", TRACEPARENT) as span:
        asked = trace_id_of(span)
    print(json.dumps({"trace_id": context.trace_id, "spans": told, "asked": asked}))


asyncio.run(main())
