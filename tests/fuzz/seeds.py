"""What fuzzing begins with: good bytes, and each near miss that their form suggests. Made anew each time, so nothing is stored."""

import json
from collections.abc import Iterator

from tests.fuzz.targets import each_field, each_part
from watchword.schemas.canonical import canonical, length_prefixed, read_length_prefixed
from watchword.schemas.errors import SchemaError

_MOST_PARTS = 8


def seeds_of(good: bytes) -> Iterator[bytes]:
    """Yield the bytes, pieces of them, and what is one change away from them in their own form."""
    yield good
    yield b""
    yield good + good
    for share in (1, 2, 3):
        yield good[: len(good) * share // 4]
    for count in range(1, _MOST_PARTS + 1):
        try:
            parts = read_length_prefixed(good, count)
        except SchemaError:
            continue
        yield from (length_prefixed(*changed) for changed in each_part(parts))
    yield from fields_of(good)


def fields_of(document: bytes) -> Iterator[bytes]:
    """Yield a JSON object with one field changed, for each; nothing for what is none."""
    try:
        found = json.loads(document)
    except ValueError:
        return
    if isinstance(found, dict):
        yield from (canonical(changed) for changed in each_field(found))
