"""The library's clients of Agentverse, without what their import does: a log file where the process stands, and handlers."""

from __future__ import annotations

import logging
from typing import Any

_root = logging.getLogger()
_handlers, _level = list(_root.handlers), _root.level

import uagents_core.logger  # noqa: E402  - sets the root logger up

_root.handlers[:] = _handlers
_root.setLevel(_level)


def _plain_logger(name: str | None = None, *arguments: Any, **options: Any) -> logging.Logger:
    """A logger that leaves handlers to the process."""
    return logging.getLogger(name)


uagents_core.logger.get_logger = _plain_logger  # before the modules below ask for theirs: each would open the file

from uagents_core.utils.registration import (  # noqa: E402
    AgentverseRequestError,
    RegistrationRequestCredentials,
    register_chat_agent,
)
from uagents_core.utils.resolver import AlmanacResolver  # noqa: E402

__all__ = ["AgentverseRequestError", "AlmanacResolver", "RegistrationRequestCredentials", "register_chat_agent"]
