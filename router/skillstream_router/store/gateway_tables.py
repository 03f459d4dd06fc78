"""The gateway's tables, beside the router's: API keys, the signing secret, owners of contexts. Times are unix ms."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Table, Text

from .tables import metadata

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", Text, primary_key=True),
    # SHA-256 of the whole key: it is random, so a slow hash would add nothing
    Column("digest", Text, nullable=False),
    Column("payer", Text, nullable=False),
    Column("label", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("revoked_at", BigInteger),
)

secrets = Table(
    "secrets",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

context_owners = Table(
    "context_owners",
    metadata,
    Column("context_id", Text, primary_key=True),
    Column("payer", Text, nullable=False),
)
