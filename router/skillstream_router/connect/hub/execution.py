"""A task of the hub as the connector keeps it, from `task.execute` to the acknowledged `task.complete`."""

from __future__ import annotations

from hashlib import sha256

from pydantic import BaseModel, ConfigDict, JsonValue

from skillstream_router.json_rpc import RpcId
from skillstream_schemas.event import FinalEvent
from skillstream_schemas.ids import START, EventId
from skillstream_schemas.state import TaskState

from .frames import TaskExecute


class Execution(BaseModel):
    """One turn of a hub's task: what was asked, the task that it became, how far the hub has heard of it.

    `turn` is 1 for the first `task.execute`, and one more for each answer to `input-required`. `cursor` is the last event
    that the hub has. `final` is kept once it is known, since the stream may go before the hub is back.
    """

    model_config = ConfigDict(frozen=True)

    hub_task: str
    turn: int = 1
    call_id: RpcId | None = None
    digest: str
    skill: str
    message: str = ""
    data: list[JsonValue] = []
    metadata: dict[str, JsonValue] = {}
    session: str | None = None
    context_id: str
    task_id: str
    follows: str | None = None
    received_at: int
    submitted: bool = False
    cursor: EventId = START
    final: FinalEvent | None = None
    state: TaskState | None = None

    @property
    def delivery(self) -> str:
        """The id of this hub task among what is owed."""
        return delivery_of(self.hub_task)

    @property
    def completion_id(self) -> str:
        """The JSON-RPC id of the turn's `task.complete`, the same each time that it is sent."""
        return f"{self.task_id}:complete"

    def ended(self, state: TaskState) -> Execution:
        """What a repetition needs to know."""
        return self.model_copy(update={"state": state, "message": "", "data": [], "metadata": {}, "final": None})


def delivery_of(hub_task: str) -> str:
    """The id among deliveries of a hub's task, whose own id may have any characters."""
    return sha256(hub_task.encode(errors="surrogatepass")).hexdigest()[:40]


def digest_of(execute: TaskExecute) -> str:
    """What two calls have in common that ask for the same."""
    return sha256(execute.message.model_dump_json().encode()).hexdigest()[:40]


def task_id_of(link: str, hub_task: str, turn: int, digest: str) -> str:
    """The id of the task that a turn of a hub's task becomes: the same call again finds the same task, another call none."""
    return f"hub-{sha256(f'{link}|{turn}|{digest}|{hub_task}'.encode(errors='surrogatepass')).hexdigest()[:40]}"


def conversation_of(link: str, execute: TaskExecute) -> str:
    """The conversation that a call belongs to: its session, or the hub's task itself. It names the context here."""
    named = f"session|{execute.session_id}" if execute.session_id is not None else f"task|{execute.id}"
    return f"hub-{sha256(f'{link}|{named}'.encode(errors='surrogatepass')).hexdigest()[:40]}"
