"""The chat bridge: agents of this broker as agents of the Agent Chat Protocol."""

from .app import ChatBridge
from .identity import ChatAddress

__all__ = ["ChatAddress", "ChatBridge"]
