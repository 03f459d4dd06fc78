"""The broker's URL as arq takes it: arq itself reads host, user and database of a URL and no more."""

from __future__ import annotations

from urllib.parse import parse_qs, unquote, urlsplit

from arq.connections import RedisSettings

from skillstream.sentinel import SentinelUrl
from skillstream_schemas.errors import InvalidSettings
from skillstream_schemas.settings import Settings, without_secret

_TEXTS = ("ssl_keyfile", "ssl_certfile", "ssl_cert_reqs", "ssl_ca_certs", "ssl_ca_data")
_FALSE = ("0", "f", "false", "n", "no", "")


class QuietRedisSettings(RedisSettings):
    """arq's settings, whose own repr shows the password."""

    def __repr__(self) -> str:
        return f"<arq RedisSettings {self.unix_socket_path or f'{self.host}:{self.port}'} db={self.database} ssl={self.ssl}>"


def arq_redis_settings(settings: Settings) -> RedisSettings:
    """arq's settings for the broker of these; raises InvalidSettings for a URL that arq cannot read."""
    url = settings.redis_url
    if (sentinels := SentinelUrl.parse(url)) is not None:
        return _through_sentinels(sentinels)
    try:
        read = RedisSettings.from_dsn(url)
        parts = urlsplit(url)
    except (ValueError, RuntimeError):
        raise InvalidSettings(f"redis_url {without_secret(url)}: arq cannot read it") from None
    query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    made = QuietRedisSettings(**read.__dict__)
    # arq leaves escapes as they are and takes user and password from before the @ alone
    made.username = query.get("username") if read.username is None else unquote(read.username)
    made.password = query.get("password") if read.password is None else unquote(read.password)
    for name in _TEXTS:
        if name in query:
            setattr(made, name, query[name])
    made.ssl_check_hostname = made.ssl and query.get("ssl_check_hostname", "1").lower() not in _FALSE
    return made


def _through_sentinels(sentinels: SentinelUrl) -> RedisSettings:
    return QuietRedisSettings(
        host=list(sentinels.hosts),
        sentinel=True,
        sentinel_master=sentinels.service,
        database=sentinels.db,
        username=sentinels.user or None,
        password=sentinels.password or None,
        ssl=sentinels.secure,
    )
