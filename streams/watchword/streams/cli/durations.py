"""Durations and times as people type them."""

import re
from datetime import UTC, datetime, timedelta

from watchword.handlers.errors import BadArgument

_DURATION = re.compile(r"([0-9]{1,9})([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def duration(text: str) -> timedelta:
    """Return a duration such as `90s`, `30m`, `12h`, `7d`, `2w`; raises `BadArgument`."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        message = f"a duration is a number and one of s, m, h, d, w, such as 12h; not {text!r}"
        raise BadArgument(message)
    try:
        return timedelta(**{_UNITS[found[2]]: int(found[1])})
    except OverflowError:
        message = f"{text!r} is too long"
        raise BadArgument(message) from None


def life(text: str) -> timedelta | None:
    """Return a duration, None for `never`; raises `BadArgument`."""
    return None if text == "never" else duration(text)


def moment(text: str, now: datetime) -> datetime:
    """Return a time: RFC 3339 (UTC if it names no zone), or so long ago (`2h`); raises `BadArgument`."""
    if _DURATION.fullmatch(text.strip()):
        return now - duration(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        message = f"a time is RFC 3339, or so long ago, such as 2h; not {text!r}"
        raise BadArgument(message) from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
