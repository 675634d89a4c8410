"""A vector, and whether it is judged as its manifest says.

A verifier that refuses all fails at the first vector that is to be taken; one that takes all fails at the first
that is to be refused, and at each taken one, of which copies with one changed byte are refused or it is wrong.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from watchword.handlers.errors import WatchwordError
from watchword.schemas.errors import SchemaError

MANIFEST = "manifest.json"
_FLIPS = 24
"""Places of a vector at which a byte is changed, if nothing else is said."""


class Mismatch(Exception):
    """Two things that have to agree do not."""


REFUSALS: tuple[type[Exception], ...] = (WatchwordError, SchemaError, Mismatch)
"""How our code says no; any other exception is a fault of ours."""

Attempt = Callable[[bytes], object]
"""Judges bytes: returns if they are taken, and raises one of `REFUSALS` if not."""


class Outcome(Enum):
    """What became of a case."""

    RIGHT = "right"
    WRONG = "wrong"
    NOT_RUN = "not run"
    ASIDE = "of nothing that is in use"


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of the vectors. `verdict` is finer than `expect`, and wins."""

    root: Path
    kind: str
    path: str
    expect: str
    verdict: str

    def data(self) -> bytes:
        """Return the file's content."""
        return (self.root / self.path).read_bytes()

    @property
    def name(self) -> str:
        """The file's own name."""
        return Path(self.path).name

    @property
    def folder(self) -> Path:
        """The folder that it is in."""
        return (self.root / self.path).parent


@dataclass(frozen=True, slots=True)
class Result:
    """A case of an entry, and what became of it."""

    entry: Entry
    outcome: Outcome
    case: str = ""
    why: str = ""


Kind = Callable[[Sequence[Entry]], Iterable[Result]]
"""Runs every entry of one kind: at least one result for each that is evidence."""


def read_manifest(root: Path) -> list[Entry]:
    """Return what the manifest names."""
    found: list[Mapping[str, str]] = json.loads((root / MANIFEST).read_text())
    return [Entry(root, e["kind"], e["path"], e["expect"], e["verdict"]) for e in found]


def accepts(
    entry: Entry,
    attempt: Attempt,
    data: bytes | None = None,
    *,
    flips: Iterable[int] | None = None,
    case: str = "",
) -> Result:
    """Return whether these bytes are taken, and each copy with one changed byte refused.

    `flips` are the places that are changed: those that anybody vouches for; all over the bytes if not given.
    """
    data = entry.data() if data is None else data
    if (said := _said(attempt, data)) is not None:
        return Result(entry, Outcome.WRONG, case, f"refused: {said}")
    for at in spread(len(data)) if flips is None else flips:
        changed = data[:at] + bytes((data[at] ^ 0x01,)) + data[at + 1 :]
        try:
            said = _said(attempt, changed)
        except Exception as error:  # noqa: BLE001 - it is the finding
            return Result(entry, Outcome.WRONG, case, f"byte {at} changed: {error!r}")
        if said is None:
            return Result(entry, Outcome.WRONG, case, f"taken with byte {at} changed")
    return Result(entry, Outcome.RIGHT, case)


def refuses(entry: Entry, attempt: Attempt, data: bytes | None = None, *, case: str = "") -> Result:
    """Return whether these bytes are refused, in the way of a refusal."""
    said = _said(attempt, entry.data() if data is None else data)
    if said is None:
        return Result(entry, Outcome.WRONG, case, "taken")
    return Result(entry, Outcome.RIGHT, case)


def either(entry: Entry, attempt: Attempt, data: bytes | None = None) -> Result:
    """Return whether these bytes are taken or refused, and nothing else happens."""
    _said(attempt, entry.data() if data is None else data)
    return Result(entry, Outcome.RIGHT)


def not_run(entry: Entry, why: str, *, case: str = "") -> Result:
    """Return that nothing of ours could judge this."""
    return Result(entry, Outcome.NOT_RUN, case, why)


def aside(entry: Entry, why: str, *, case: str = "") -> Result:
    """Return that this is about something that nothing of ours is meant to do; it does not count."""
    return Result(entry, Outcome.ASIDE, case, why)


def same(one: object, other: object) -> None:
    """Raise `Mismatch` unless both are equal."""
    if one != other:
        raise Mismatch


def spread(size: int, count: int = _FLIPS) -> list[int]:
    """Return places all over some bytes, the first and the last of them among these."""
    step = max(1, size // count)
    return sorted({*range(0, size, step), size - 1})


def _said(attempt: Attempt, data: bytes) -> str | None:
    """Return why bytes were refused; None if they were taken."""
    try:
        attempt(data)
    except REFUSALS as error:
        return str(error) or type(error).__name__
    return None
