"""What a request may say beyond OpenAI's own fields."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Extension(BaseModel):
    """The field `skillstream` of a request: `extra_body={"skillstream": {…}}` in OpenAI's clients."""

    model_config = ConfigDict(extra="forbid")

    task_id: str | None = Field(default=None, description="The same id with the same request again runs nothing twice.")
    context_id: str | None = Field(default=None, description="The conversation; yours once you named it first.")
    payer: str | None = Field(default=None, description="Only on an open gateway: a key has its own.")
    progress: bool = Field(default=False, description="Progress of the skill goes into the stream, in fields of our own.")
    cancel_on_disconnect: bool = Field(default=False, description="A caller that leaves before the end cancels the run.")
