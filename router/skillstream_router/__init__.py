"""The router: does once, and only once, what must follow from a task: state, history, payment; and ends what nobody ends."""

from skillstream_schemas.errors import MissingExtra

try:
    from .app import Router
except ModuleNotFoundError as error:
    raise MissingExtra.of(error, "the router needs", "router") from None

__all__ = ["Router"]
