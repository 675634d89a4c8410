"""What a check finds."""

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor's. `fail` is what breaks a promise, `warn` what may."""

    level: Level
    check: str
    text: str


def ok(check: str, text: str) -> Finding:
    """Return that all is well."""
    return Finding("ok", check, text)


def warn(check: str, text: str) -> Finding:
    """Return that something should be looked at."""
    return Finding("warn", check, text)


def fail(check: str, text: str) -> Finding:
    """Return that something is broken."""
    return Finding("fail", check, text)
