"""The HTTP gateway: tasks over JSON, server-sent events and WebSockets, for callers with an API key.

Needs the extra `http`.
"""

from .server import HttpServer

__all__ = ["HttpServer"]
