"""Times as they are written: RFC 3339, UTC, milliseconds; or as microseconds, where they have to be exact."""

from datetime import UTC, datetime
from functools import lru_cache

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@lru_cache(maxsize=64)  # all that a batch writes carries the same few times
def rfc3339(at: datetime) -> str:
    """Return an aware time as `2026-01-02T03:04:05.678Z`; digits below a millisecond are cut."""
    if at.tzinfo is not UTC:
        at = at.astimezone(UTC)
    return at.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def parse_rfc3339(text: str) -> datetime:
    """Return the aware time that `rfc3339` wrote; raises `ValueError` for any other form."""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)


def microseconds(at: datetime) -> int:
    """Return a time as microseconds since the epoch: exact, as PostgreSQL keeps it."""
    since = at - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
