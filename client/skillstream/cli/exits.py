"""Exit codes, and errors as one line with a code and what to do."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Coroutine
from enum import IntEnum
from typing import Any, ParamSpec

import typer

from skillstream_schemas.errors import (
    BrokerUnavailable,
    DatabaseUnavailable,
    InvalidName,
    InvalidRequest,
    InvalidSettings,
    InvalidTarget,
    MissingExtra,
    ShardsMismatch,
    SkillstreamError,
)
from skillstream_schemas.gateway_errors import AddressInUse, OpenGateway
from skillstream_schemas.state import TaskState

from .output import go_silent
from .process import run_loop

P = ParamSpec("P")


class Exit(IntEnum):
    """What the command's exit code says."""

    OK = 0
    FAILED = 1
    USAGE = 2
    CANCELED = 3
    UNREACHABLE = 4
    INTERRUPTED = 130


_USAGE = (
    AddressInUse, InvalidName, InvalidRequest, InvalidSettings, InvalidTarget, MissingExtra, OpenGateway, ShardsMismatch,
)  # fmt: skip


def exit_of_state(state: TaskState) -> Exit:
    """The exit code that tells how a task ended."""
    match state:
        case TaskState.COMPLETED | TaskState.INPUT_REQUIRED:
            return Exit.OK
        case TaskState.CANCELED:
            return Exit.CANCELED
        case _:
            return Exit.FAILED


def exit_of_error(error: SkillstreamError) -> Exit:
    """The exit code for an error."""
    if isinstance(error, (BrokerUnavailable, DatabaseUnavailable)):
        return Exit.UNREACHABLE
    return Exit.USAGE if isinstance(error, _USAGE) else Exit.FAILED


def command(function: Callable[P, Coroutine[Any, Any, Exit | None]]) -> Callable[P, None]:
    """Makes a typer command of a coroutine function: runs it, prints its error as one line, exits with its code."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            code = run_loop(function(*args, **kwargs)) or Exit.OK
        except SkillstreamError as error:
            sys.stderr.write(f"{error}\n")
            code = exit_of_error(error)
        except KeyboardInterrupt:
            code = Exit.INTERRUPTED
        except BrokenPipeError:
            go_silent()
            code = Exit.OK
        raise typer.Exit(int(code))

    return run
