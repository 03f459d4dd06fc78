"""The router: does once, and only once, what must follow from a task: state, history, payment; and ends what nobody ends."""

from skillstream_schemas.errors import MissingExtra

try:
    from .app import Router
except ModuleNotFoundError as error:
    if (error.name or "").startswith("skillstream"):
        raise
    raise MissingExtra(f"the router needs {error.name} (pip install 'skillstream[router]')") from None

__all__ = ["Router"]
