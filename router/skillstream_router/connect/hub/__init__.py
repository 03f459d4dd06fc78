"""The hub connector: agents of this broker at a Society hub, over its WebSocket and JSON-RPC frames."""

from .app import HubConnector
from .sign_in import HubAddress

__all__ = ["HubAddress", "HubConnector"]
