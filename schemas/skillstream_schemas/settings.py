"""Settings of every part, as one plain model; each is also an environment variable.

`SKILLSTREAM_REDIS_URL` sets `redis_url`, `SKILLSTREAM_LIMITS_MESSAGE_BYTES` sets `limits.message_bytes`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from .errors import InvalidSettings
from .keys import Keyspace
from .limits import KIB, MIB, Limits
from .request import describe

_PREFIX = "SKILLSTREAM_"
_DAY_S = 86_400
_LONGEST_S = 3650 * _DAY_S
_URLS = ("redis_url", "database_url", "http_redis_url")
_USER = re.compile(r"(?<=://).*@", re.DOTALL)  # up to the last @: a password may hold what should have been %-encoded
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\s/]+):([0-9]{1,5})\Z")
_SECRET = re.compile(r"([?&][^=&]*(?:user|pass|secret|token)[^=&]*=)[^&]*", re.IGNORECASE)


class Settings(BaseModel):
    """What a process needs to know; durations are seconds.

    Keys: `prefix`, `shards` (fixed at a broker's first start). Retention: `stream_ttl_s` from the last
    opening, `final_ttl_s` once the router has the final. Worker: `lease_s`, `grace_s` for running tasks at
    a stop, `cancel_grace_s` for a skill that was told to stop (then its attempt ends without it), `concurrency`
    tasks at once, `poll_s` between looks for jobs of clients that do not ring, `announce_s` between announcements.
    Connections: `connect_timeout_s`, `answer_timeout_s` for one answer, `patience_s` until a step gives up on a
    broker that stays away. History: `context_messages` kept per context for `context_ttl_s`. Ledger:
    `platform_share` in hundredths of a percent of each price. Gateway: `http` is its HOST:PORT, None for no gateway;
    `http_redis_url` the broker's URL with a user of its own; `http_cors` the origins whose pages may call it (in the
    environment separated by commas), `http_body_bytes` the limit of a request's body, `http_bodies_bytes` the limit of
    all bodies that are read at one time, `http_connections` the most connections, `http_keep_alive_s` the longest silence
    on a stream, `http_patience_s` what a request waits for a broker that is away.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    redis_url: str = "redis://127.0.0.1:6379/0"
    database_url: str = "sqlite:///skillstream.db"
    prefix: str = Field(default="skillstream", pattern=r"^[A-Za-z0-9._-]{1,64}$")
    shards: int = Field(default=16, ge=1, le=16_384)
    stream_ttl_s: float = Field(default=7 * _DAY_S, ge=7200, le=_LONGEST_S)
    final_ttl_s: float = Field(default=_DAY_S, ge=0.001, le=_LONGEST_S)
    lease_s: float = Field(default=15, ge=0.2, le=3600)
    grace_s: float = Field(default=30, ge=0, le=_LONGEST_S)
    cancel_grace_s: float = Field(default=5, ge=0.01, le=_LONGEST_S)
    concurrency: int = Field(default=100, ge=1, le=100_000)
    poll_s: float = Field(default=2, gt=0, le=_LONGEST_S)
    announce_s: float = Field(default=20, gt=0, le=_LONGEST_S)
    connect_timeout_s: float = Field(default=5, gt=0, le=_LONGEST_S)
    answer_timeout_s: float = Field(default=10, gt=0, le=_LONGEST_S)
    patience_s: float = Field(default=30, gt=0, le=_LONGEST_S)
    context_messages: int = Field(default=50, ge=0, le=10_000)
    context_ttl_s: float = Field(default=30 * _DAY_S, ge=0.001, le=_LONGEST_S)
    platform_share: int = Field(default=500, ge=0, le=10_000)
    http: str | None = None
    http_redis_url: str | None = None
    http_cors: tuple[str, ...] = ()
    http_body_bytes: int = Field(default=8 * MIB, ge=KIB, le=64 * MIB)
    http_bodies_bytes: int = Field(default=64 * MIB, ge=KIB, le=64 * KIB * MIB)
    http_connections: int = Field(default=4096, ge=1, le=1_000_000)
    http_keep_alive_s: float = Field(default=15, gt=0, le=3600)
    http_patience_s: float = Field(default=3, gt=0, le=3600)
    limits: Limits = Limits()

    @field_validator(*_URLS)
    @classmethod
    def _is_url(cls, value: str | None) -> str | None:
        if value is not None and "://" not in value:
            raise ValueError("is not a URL, such as redis://127.0.0.1:6379/0 or sqlite:///skillstream.db")
        return value

    @field_validator("http_cors", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return [origin.strip() for origin in value.split(",") if origin.strip()] if isinstance(value, str) else value

    @field_validator("http")
    @classmethod
    def _is_address(cls, value: str | None) -> str | None:
        if value is not None and _ADDRESS.match(value) is None:
            raise ValueError("is not HOST:PORT, such as 127.0.0.1:8000")
        return value

    @property
    def http_address(self) -> tuple[str, int] | None:
        """Host and port of the gateway, None where there is none; port 0 is any free one."""
        found = _ADDRESS.match(self.http or "")
        return None if found is None else (found[1].strip("[]"), int(found[2]))

    @property
    def keys(self) -> Keyspace:
        """The names of all keys under these settings."""
        return Keyspace(self.prefix, self.shards)

    @property
    def forget_s(self) -> float:
        """Seconds until a worker, or a skill that nobody announces, leaves the card: three periods of silence."""
        return 3 * self.announce_s

    @classmethod
    def variables(cls) -> list[str]:
        """The names of all environment variables that `from_env` reads."""
        names = [_PREFIX + name.upper() for name in cls.model_fields if name != "limits"]
        return names + [f"{_PREFIX}LIMITS_{name.upper()}" for name in Limits.model_fields]

    @classmethod
    def from_env(cls, env: Mapping[str, str], **overrides: Any) -> Self:
        """Reads settings from environment variables; `overrides` that are not None win.

        Raises InvalidSettings, which names the variable, for a value that cannot be used.
        """
        values: dict[str, Any] = {}
        limits: dict[str, Any] = {}
        for name in cls.model_fields:
            if name != "limits" and (text := env.get(_PREFIX + name.upper())):
                values[name] = text
        for name in Limits.model_fields:
            if text := env.get(f"{_PREFIX}LIMITS_{name.upper()}"):
                limits[name] = text
        if limits:
            values["limits"] = limits
        values.update((name, value) for name, value in overrides.items() if value is not None)
        return cls._checked(values)

    def changed(self, **changes: Any) -> Self:
        """These settings with other values for some; raises InvalidSettings."""
        return self._checked({**self.model_dump(), **changes})

    @classmethod
    def _checked(cls, values: Mapping[str, Any]) -> Self:
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise InvalidSettings(describe(error)) from None

    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        """What repr, str and rich show: no user and no password."""
        for name, value in self:
            yield name, without_secret(value) if name in _URLS and value is not None else value


def without_secret(url: str) -> str:
    """The URL with user and password replaced, for logs and errors."""
    return _SECRET.sub(r"\1***", _USER.sub("***@", url))
