"""The broker's URL as arq takes it: arq itself reads host, user and database of a URL and no more."""

from __future__ import annotations

from urllib.parse import parse_qsl, unquote, urlsplit

from arq.connections import RedisSettings

from skillstream.sentinel import SentinelUrl, checks_hostname
from skillstream_schemas.errors import InvalidSettings
from skillstream_schemas.settings import Settings, without_secret

_TEXTS = ("ssl_keyfile", "ssl_certfile", "ssl_cert_reqs", "ssl_ca_certs", "ssl_ca_data")


class QuietRedisSettings(RedisSettings):
    """arq's settings, whose own repr shows the password."""

    def __repr__(self) -> str:
        place = self.unix_socket_path or (self.host if self.sentinel else f"{self.host}:{self.port}")
        return f"<arq RedisSettings {place} db={self.database} ssl={self.ssl}>"


def arq_redis_settings(settings: Settings) -> RedisSettings:
    """arq's settings for the broker of these; raises InvalidSettings for a URL that arq cannot read."""
    url = settings.redis_url
    if "+cluster://" in url:
        raise InvalidSettings(
            "redis_url: arq knows no Cluster; its workers, plain functions and cron jobs need one server or Sentinel"
        )
    sentinels = SentinelUrl.parse(url)
    if sentinels is None:
        made, query = _of_server(url)
    else:
        made, query = _of_sentinels(sentinels), {}
    for name in _TEXTS:
        if name in query:
            setattr(made, name, query[name])
    made.ssl_check_hostname = made.ssl and checks_hostname(query)
    return made


def _of_server(url: str) -> tuple[RedisSettings, dict[str, str]]:
    try:
        read = RedisSettings.from_dsn(url)
        query = dict(parse_qsl(urlsplit(url).query))
    except (ValueError, RuntimeError):
        raise InvalidSettings(f"redis_url {without_secret(url)}: arq cannot read it") from None
    made = QuietRedisSettings(**read.__dict__)
    # arq leaves escapes as they are and takes user and password from before the @ alone
    made.username = query.get("username") if read.username is None else unquote(read.username)
    made.password = query.get("password") if read.password is None else unquote(read.password)
    return made, query


def _of_sentinels(url: SentinelUrl) -> RedisSettings:
    sentinels = url.sentinels
    if sentinels.secure:
        raise InvalidSettings("redis_url: arq asks Sentinels without TLS alone, so rediss+sentinel:// is not for plain functions")
    return QuietRedisSettings(
        host=list(sentinels.hosts),
        database=url.db,
        username=sentinels.user or None,
        password=sentinels.password or None,
        sentinel=True,
        sentinel_master=url.service,
    )
