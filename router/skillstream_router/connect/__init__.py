"""Connectors: agents of this broker, offered to other agent networks by a process of their own."""
