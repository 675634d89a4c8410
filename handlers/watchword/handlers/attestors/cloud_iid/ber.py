"""Bounds on BER (ITU-T X.690), checked without recursion before any parser sees the bytes.

A parser of BER recurses by depth and copies constructed strings, so that a small blob can cost much:
1,000 levels of indefinite length are 4 KB. Here is one pass over the headers, linear in the size.
"""

from watchword.handlers.attestors.cloud_iid.reasons import Unproven

MAX_BYTES = 32 * 1024
MAX_DEPTH = 24
"""A SignedData with certificates of today is 15 deep."""
MAX_ELEMENTS = 4096

_LONG_TAG = 0x1F
_CONSTRUCTED = 0x20
_INDEFINITE = 0x80
_MAX_LENGTH_BYTES = 4


def check_bounds(data: bytes) -> None:
    """Return only if `data` is exactly one well-formed BER element within the bounds.

    Raises:
        Unproven: `cms-malformed`.
    """
    if not 0 < len(data) <= MAX_BYTES:
        raise Unproven(_MALFORMED)
    # What is open: where it must have ended at the latest, and whether it ends by end-of-contents.
    opened: list[tuple[int, bool]] = []
    at = 0
    for _ in range(MAX_ELEMENTS):
        limit, indefinite = opened[-1] if opened else (len(data), False)
        tag, length, at = _header(data, at, limit)
        if tag == 0:
            if length != 0 or not indefinite:
                raise Unproven(_MALFORMED)
            opened.pop()
        elif length is None:
            if not tag & _CONSTRUCTED:
                raise Unproven(_MALFORMED)
            opened.append((limit, True))
        else:
            if at + length > limit:
                raise Unproven(_MALFORMED)
            if tag & _CONSTRUCTED:
                opened.append((at + length, False))
            else:
                at += length
        if len(opened) > MAX_DEPTH:
            raise Unproven(_MALFORMED)
        while opened and opened[-1] == (at, False):
            opened.pop()
        if not opened:
            if at != len(data):
                raise Unproven(_MALFORMED)
            return
    raise Unproven(_MALFORMED)


def _header(data: bytes, at: int, limit: int) -> tuple[int, int | None, int]:
    """Return tag, length (None is indefinite) and where the content begins."""
    if at + 2 > limit:
        raise Unproven(_MALFORMED)
    tag, length = data[at], data[at + 1]
    start = at + 2
    if tag & _LONG_TAG == _LONG_TAG:
        raise Unproven(_MALFORMED)  # tags beyond 30 occur nowhere in CMS
    if length == _INDEFINITE:
        return tag, None, start
    if length > _INDEFINITE:
        size = length - _INDEFINITE
        if size > _MAX_LENGTH_BYTES or start + size > limit:
            raise Unproven(_MALFORMED)
        length = int.from_bytes(data[start : start + size], "big")
        start += size
    return tag, length, start


_MALFORMED = "cms-malformed"
