"""Each setting comes from the environment; a bad one is named; no secret is printed."""

from __future__ import annotations

from typing import Any

import pytest

from skillstream_schemas.errors import InvalidSettings
from skillstream_schemas.limits import Limits
from skillstream_schemas.settings import Settings, without_secret

GOOD: dict[str, tuple[str, Any]] = {
    "redis_url": ("rediss://broker:6380/2", "rediss://broker:6380/2"),
    "database_url": ("postgresql://db/skills", "postgresql://db/skills"),
    "prefix": ("team.one", "team.one"),
    "shards": ("4", 4),
    "stream_ttl_s": ("7200", 7200),
    "final_ttl_s": ("60", 60),
    "lease_s": ("2.5", 2.5),
    "grace_s": ("0", 0),
    "cancel_grace_s": ("2.5", 2.5),
    "concurrency": ("7", 7),
    "poll_s": ("0.5", 0.5),
    "announce_s": ("3", 3),
    "connect_timeout_s": ("1", 1),
    "answer_timeout_s": ("2", 2),
    "patience_s": ("9", 9),
    "context_messages": ("0", 0),
    "context_ttl_s": ("60", 60),
    "platform_share": ("10000", 10_000),
    "http": ("[::1]:8000", "[::1]:8000"),
    "http_redis_url": ("redis://submitter@broker", "redis://submitter@broker"),
    "http_cors": ("https://a.example, https://b.example", ("https://a.example", "https://b.example")),
    "http_body_bytes": ("2048", 2048),
    "http_bodies_bytes": ("4096", 4096),
    "http_connections": ("10", 10),
    "http_keep_alive_s": ("1.5", 1.5),
    "http_patience_s": ("2.5", 2.5),
}
BAD = {
    "redis_url": "localhost", "database_url": "", "prefix": "{x}", "shards": "0", "stream_ttl_s": "60", "final_ttl_s": "0",
    "lease_s": "soon", "grace_s": "-1", "cancel_grace_s": "0", "concurrency": "1.5", "poll_s": "0", "announce_s": "0",
    "connect_timeout_s": "nan",
    "answer_timeout_s": "0", "patience_s": "", "context_messages": "-1", "context_ttl_s": "0", "platform_share": "10001",
    "http": "8000", "http_redis_url": "broker", "http_cors": "", "http_body_bytes": "10", "http_bodies_bytes": "10",
    "http_connections": "0", "http_keep_alive_s": "0", "http_patience_s": "0",
}  # fmt: skip


def test_all_settings_are_tried_here() -> None:
    assert set(GOOD) == set(BAD) == set(Settings.model_fields) - {"limits"}


@pytest.mark.parametrize("name", GOOD)
def test_each_setting_comes_from_its_variable(name: str) -> None:
    text, value = GOOD[name]
    settings = Settings.from_env({f"SKILLSTREAM_{name.upper()}": text, "UNRELATED": "x", "SKILLSTREAM_UNKNOWN": "x"})
    assert getattr(settings, name) == value
    assert settings != Settings()


@pytest.mark.parametrize("name", sorted(name for name, text in BAD.items() if text))
@pytest.mark.guarantee("G13")
def test_a_bad_value_is_refused_by_name(name: str) -> None:
    with pytest.raises(InvalidSettings, match=name):
        Settings.from_env({f"SKILLSTREAM_{name.upper()}": BAD[name]})


@pytest.mark.parametrize("name", sorted(name for name, text in BAD.items() if not text))
def test_an_empty_variable_counts_as_unset(name: str) -> None:
    assert Settings.from_env({f"SKILLSTREAM_{name.upper()}": ""}) == Settings()


@pytest.mark.parametrize("name", Limits.model_fields)
def test_each_limit_comes_from_its_variable(name: str) -> None:
    settings = Settings.from_env({f"SKILLSTREAM_LIMITS_{name.upper()}": "131072"})
    assert getattr(settings.limits, name) == 131_072
    with pytest.raises(InvalidSettings, match=name):
        Settings.from_env({f"SKILLSTREAM_LIMITS_{name.upper()}": "-1"})


def test_what_the_caller_says_wins_over_the_environment() -> None:
    settings = Settings.from_env({"SKILLSTREAM_SHARDS": "4", "SKILLSTREAM_PREFIX": "env"}, shards=8, prefix=None)
    assert (settings.shards, settings.prefix) == (8, "env")


def test_settings_change_as_a_copy() -> None:
    settings = Settings(shards=4)
    assert settings.changed(lease_s=3) == Settings(shards=4, lease_s=3)
    assert settings.shards == 4
    with pytest.raises(InvalidSettings, match="redis_url"):
        settings.changed(redis_url="localhost")


SECRETS = [
    "redis://:hunter2@host/0", "redis://user:hunter2@host/0", "redis://user:p@hunter2@host:1/0", "rediss://hunter2@host",
    "unix:///run/redis.sock?password=hunter2&db=1", "redis://host/0?db=1&password=hunter2", "postgresql://user:hunter2@db/x",
]  # fmt: skip


@pytest.mark.parametrize("url", SECRETS)
@pytest.mark.parametrize("name", ["redis_url", "database_url"])
def test_secrets_are_not_printed(name: str, url: str) -> None:
    settings = Settings().changed(**{name: url})
    assert "hunter2" not in repr(settings)
    assert "hunter2" not in str(settings)
    assert "hunter2" not in f"{settings}"
    assert "hunter2" not in without_secret(url)


def test_what_is_no_secret_stays_readable() -> None:
    assert without_secret("redis://host:6379/0?db=1") == "redis://host:6379/0?db=1"
    assert without_secret("redis://user:pw@host:6379/0") == "redis://***@host:6379/0"
    assert without_secret("unix:///run/r.sock?password=pw&db=1") == "unix:///run/r.sock?password=***&db=1"


@pytest.mark.parametrize("text", ["redis-without-scheme hunter2", "hunter2"])
def test_a_refused_url_is_not_quoted(text: str) -> None:
    with pytest.raises(InvalidSettings) as raised:
        Settings.from_env({"SKILLSTREAM_REDIS_URL": text})
    assert "hunter2" not in str(raised.value)


def test_a_value_that_is_none_is_told_with_an_example() -> None:
    with pytest.raises(InvalidSettings) as raised:
        Settings.from_env({"SKILLSTREAM_REDIS_URL": "localhost", "SKILLSTREAM_HTTP": "8000"})
    assert "redis_url: is not a URL, such as redis://" in raised.value.message
    assert "http: is not HOST:PORT, such as 127.0.0.1:8000" in raised.value.message
