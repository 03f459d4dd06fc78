"""The FastAPI application: what every endpoint needs, and the endpoints of the folder `routes`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from pkgutil import iter_modules

from fastapi import FastAPI

from . import failures, routes
from .authentication import Authenticator
from .body_guard import BodyGuard
from .description import DescribedApi
from .gateway import Gateway

_ABOUT = "Submit tasks to agents, follow their streams live and come back at the same place, cancel them."


@dataclass(frozen=True, slots=True)
class Parts:
    """What endpoints find in `app.state`: `stopping` is set once open streams are to end."""

    gateway: Gateway
    authenticator: Authenticator
    stopping: asyncio.Event


def make_app(parts: Parts) -> FastAPI:
    """The application over these parts; each module in `routes` brings its `router`."""
    settings = parts.gateway.settings
    app = DescribedApi(title="skillstream", description=_ABOUT, version=version("skillstream"), docs_url=None, redoc_url=None)
    app.state.gateway = parts.gateway
    app.state.authenticator = parts.authenticator
    app.state.stopping = parts.stopping
    failures.install(app)
    app.add_middleware(
        BodyGuard,
        authenticator=parts.authenticator,
        limit_bytes=settings.http_body_bytes,
        most_bytes=max(settings.http_bodies_bytes, settings.http_body_bytes),
    )
    for module in iter_modules(routes.__path__):
        app.include_router(import_module(f"{routes.__name__}.{module.name}").router)
    return app
