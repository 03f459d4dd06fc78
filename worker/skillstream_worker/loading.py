"""Finding agents by name: MODULE:AGENT."""

from __future__ import annotations

import importlib
import os
import sys
import sysconfig
import traceback
from pathlib import Path
from types import ModuleType

import skillstream
import skillstream_schemas
from skillstream_schemas.errors import InvalidTarget

from .agent import Agent

_OURS = [Path(part.__file__).parent for part in (skillstream_schemas, skillstream, sys.modules[__package__]) if part.__file__]
_PATHS = sysconfig.get_paths()
_PYTHONS = [Path(_PATHS[name]) for name in ("stdlib", "platstdlib")]
_INSTALLED = [Path(_PATHS[name]) for name in ("purelib", "platlib")]


def load_agent(target: str) -> Agent:
    """Imports the agent named as MODULE:AGENT, from the current directory or the installed packages.

    Raises InvalidTarget, which says what of the name is wrong.
    """
    module_name, colon, attribute = target.partition(":")
    if not colon or not module_name or not attribute:
        raise InvalidTarget(f"{target!r} is not of the form MODULE:AGENT, such as examples.librarian:agent")
    if "/" in module_name:
        raise InvalidTarget(f"{target!r}: {module_name} is a path, and no module", hint=_meant(target))
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    found = getattr(_module(target, module_name), attribute, None)
    if found is None:
        module = sys.modules[module_name]
        agents = ", ".join(name for name, value in vars(module).items() if isinstance(value, Agent)) or "none"
        raise InvalidTarget(f"{target!r}: {module_name} has no {attribute!r}; its agents: {agents}")
    if not isinstance(found, Agent):
        raise InvalidTarget(f"{target!r} is a {type(found).__name__}, not an Agent")
    if not found.skills and not found.functions and not found.cron_jobs:
        raise InvalidTarget(f"{target!r}: agent {found.name} has no skills", hint='@agent.skill("name") makes a function one')
    return found


def _module(target: str, name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or name
        if name == missing or name.startswith(missing + "."):
            raise InvalidTarget(f"{target!r}: there is no module {missing!r}", hint=_meant(target)) from None
        raise InvalidTarget(
            f"{target!r}: {name} imports {missing!r}, which is not there ({_place(error)})", hint=f"install it, or mend {name}"
        ) from error
    except (Exception, SystemExit) as error:
        said = error.msg if isinstance(error, SyntaxError) else error
        raise InvalidTarget(
            f"{target!r}: importing {name} raised {type(error).__name__}: {said} ({_place(error)})", hint=f"mend {name}"
        ) from error


def _meant(target: str) -> str | None:
    """A hint for who named a file, None for all others."""
    path, _, attribute = target.partition(":")
    if not path.endswith(".py"):
        return None
    return f"did you mean {path.removesuffix('.py').removeprefix('./').replace('/', '.')}:{attribute}"


def _place(error: BaseException) -> str:
    """File and line of the author's code at which an import broke."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<frozen importlib")]
    others = [frame for frame in frames if not _is_in(frame, _OURS)]
    # an agent may be installed too: then the last line of any package is the nearest
    installed = [frame for frame in others if _is_in(frame, _INSTALLED) or not _is_in(frame, _PYTHONS)]
    own = [frame for frame in installed if not _is_in(frame, _INSTALLED)]
    where = (own or installed or others or frames)[-1]
    return f"{where.filename}:{where.lineno}"


def _is_in(frame: traceback.FrameSummary, folders: list[Path]) -> bool:
    return any(Path(frame.filename).is_relative_to(folder) for folder in folders)
