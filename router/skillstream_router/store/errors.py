"""What can go wrong with the database, in our own words."""

from __future__ import annotations

from skillstream_schemas.errors import SkillstreamError


class DatabaseUnavailable(SkillstreamError):
    """The database could not be opened, read or written just now."""

    code = "database_unavailable"
    hint = "check the database URL, its folder, the free space and whether another process holds it"


class DatabaseRefused(SkillstreamError):
    """The database does not take these values, however often they are sent."""

    code = "database_refused"
