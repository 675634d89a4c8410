"""Times as they are written: RFC 3339, UTC, milliseconds."""

from datetime import UTC, datetime
from functools import lru_cache


@lru_cache(maxsize=64)  # all that a batch writes carries the same few times
def rfc3339(at: datetime) -> str:
    """Return an aware time as `2026-01-02T03:04:05.678Z`; digits below a millisecond are cut."""
    if at.tzinfo is not UTC:
        at = at.astimezone(UTC)
    return at.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def parse_rfc3339(text: str) -> datetime:
    """Return the aware time that `rfc3339` wrote; raises `ValueError` for any other form."""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
