"""Looks for secrets where they must not be, in whatever spelling."""

import base64
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

_SHORTEST = 8
"""Patterns below this many bytes would be found by chance."""


@dataclass(frozen=True, slots=True)
class Canary:
    """A secret, and where it was put."""

    place: str
    secret: bytes = field(repr=False)


def spellings(secret: bytes) -> set[bytes]:
    """Return raw, hexadecimal and base64 forms; of base64 what is the same wherever it begins.

    Base64 writes three bytes as four characters, so a secret inside something longer has three
    spellings; the first and last characters also carry bits of its neighbours and are cut off.
    """
    found = {secret, secret.hex().encode(), secret.hex().upper().encode()}
    for shift in range(3):
        text = base64.b64encode(bytes(shift) + secret)
        core = text[-(-8 * shift // 6) : 8 * (shift + len(secret)) // 6]
        found |= {core, core.replace(b"+", b"-").replace(b"/", b"_")}
    if secret.isascii():
        # As JSON or a log would quote it.
        found.add(secret.decode().encode("unicode_escape"))
    return {spelling for spelling in found if len(spelling) >= _SHORTEST}


class Canaries:
    """Every secret of a round."""

    def __init__(self, canaries: Iterable[Canary]) -> None:
        """Spell them."""
        self._patterns = [
            (canary.place, pattern)
            for canary in canaries
            for pattern in sorted(spellings(canary.secret))
        ]

    def __len__(self) -> int:
        """Return how many patterns are looked for."""
        return len(self._patterns)

    @property
    def longest(self) -> int:
        """How many bytes the longest pattern has."""
        return max((len(pattern) for _, pattern in self._patterns), default=1)

    def found_in(self, data: bytes) -> Iterator[str]:
        """Yield the place of every secret that stands in these bytes."""
        for place, pattern in self._patterns:
            if pattern in data:
                yield place
