"""Finding agents by name: MODULE:AGENT."""

from __future__ import annotations

import importlib
import os
import sys

from skillstream_schemas.errors import InvalidTarget

from .agent import Agent


def load_agent(target: str) -> Agent:
    """Imports the agent named as MODULE:AGENT, from the current directory or the installed packages.

    Raises InvalidTarget, which says what of the name is wrong.
    """
    module_name, colon, attribute = target.partition(":")
    if not colon or not module_name or not attribute:
        raise InvalidTarget(f"{target!r} is not of the form MODULE:AGENT, such as examples.librarian:agent")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise InvalidTarget(f"{target!r}: there is no module {error.name!r}") from None
    except Exception as error:
        raise InvalidTarget(f"{target!r}: importing {module_name} raised {type(error).__name__}: {error}") from error
    found = getattr(module, attribute, None)
    if found is None:
        agents = ", ".join(name for name, value in vars(module).items() if isinstance(value, Agent)) or "none"
        raise InvalidTarget(f"{target!r}: {module_name} has no {attribute!r}; its agents: {agents}")
    if not isinstance(found, Agent):
        raise InvalidTarget(f"{target!r} is a {type(found).__name__}, not an Agent")
    return found
