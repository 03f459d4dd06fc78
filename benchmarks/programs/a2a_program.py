"""a2a-sdk as it ships: the agent runs in the server's own process, tasks are kept in memory, an artifact part a token."""

from __future__ import annotations

import asyncio
import sys
import uuid
from typing import Any

import uvicorn
from a2a.helpers.proto_helpers import get_message_text, new_task_from_user_message, new_text_part
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes.jsonrpc_routes import create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types.a2a_pb2 import AgentCapabilities, AgentCard, AgentInterface, AgentSkill
from starlette.applications import Starlette

PATH = "/rpc"


class Teller(AgentExecutor):
    """Responsible for the tokens of one task."""

    async def execute(self, context: Any, event_queue: Any) -> None:
        """Called by the SDK for each message."""
        count, delay_s = get_message_text(context.message).split()
        if context.current_task is None:
            task = new_task_from_user_message(context.message)
            task.id, task.context_id = context.task_id, context.context_id
            await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        await updater.start_work()
        artifact_id = uuid.uuid4().hex
        for number in range(int(count)):
            await asyncio.sleep(float(delay_s))
            part = new_text_part(f"t{number} ")
            await updater.add_artifact([part], artifact_id=artifact_id, append=number > 0, last_chunk=number == int(count) - 1)
        await updater.complete()

    async def cancel(self, context: Any, event_queue: Any) -> None:
        """No run is canceled here."""
        raise RuntimeError("not asked for")


def serve(port: int) -> None:
    """Runs the server."""
    url = f"http://127.0.0.1:{port}{PATH}"
    card = AgentCard(
        name="teller", description="Tells numbered tokens", version="1", capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"], default_output_modes=["text/plain"],
        skills=[AgentSkill(id="tell", name="tell", description="Tells", tags=["tokens"])],
        supported_interfaces=[AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version="1.0")],
    )  # fmt: skip
    handler = DefaultRequestHandler(agent_executor=Teller(), task_store=InMemoryTaskStore(), agent_card=card)
    uvicorn.run(Starlette(routes=create_jsonrpc_routes(handler, PATH)), host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    serve(int(sys.argv[1]))
