"""The router: does once, and only once, what must follow from a task: state, history, payment; and ends what nobody ends."""

from .app import Router

__all__ = ["Router"]
