"""BER (ITU-T X.690) as far as CMS needs it: bounded, read in one pass without recursion, linear in the size.

A general parser recurses by depth and copies constructed strings, so that a small blob can cost much:
1,000 levels of indefinite length are 4 KB. Here is one pass over the headers that checks every bound;
the elements that it finds are what `cms` reads from. Nothing is interpreted here.
"""

from functools import lru_cache

from watchword.handlers.attestors.cloud_iid.reasons import Unproven

MAX_BYTES = 32 * 1024
MAX_DEPTH = 24
"""A SignedData with certificates of today is 15 deep."""
MAX_ELEMENTS = 2048
"""One with four certificates has some 400."""

SEQUENCE, SET, INTEGER, OCTETS, OID = 0x30, 0x31, 0x02, 0x04, 0x06
CONSTRUCTED = 0x20

_CERTIFICATES = 0xA0
_CERTIFICATES_DEPTH = 5
"""Where SignedData has its certificates: below what holds all, ContentInfo, its [0], SignedData, and their [0]."""
_MOST_CERTIFICATES = 8
_MAX_CERTIFICATE_ELEMENTS = 512

_LONG_TAG = 0x1F
_INDEFINITE = 0x80
_MAX_LENGTH_BYTES = 4
_MALFORMED = "cms-malformed"


class Element:
    """One element: its tag (one byte), and where in the data it, its content and its end are."""

    __slots__ = ("begin", "content", "end", "is_definite", "limit", "parts", "tag")

    def __init__(self, tag: int, begin: int, content: int, limit: int, parts: "Parts") -> None:
        """Take what the header says. Not by names: a document has dozens, and they would cost as much as the rest."""
        self.tag = tag
        self.begin = begin
        self.content = content
        self.limit = limit
        """Where the content ends. Of an indefinite length it is not known yet, nor is `end`."""
        self.end = limit
        """Where the element ends: behind the end-of-contents, if it has such."""
        self.is_definite = True
        self.parts = parts
        """What a constructed element consists of; a primitive one has none."""


Parts = list[Element]
_NONE: Parts = []
"""Of all primitive elements, and nobody adds to it."""


def parse(data: bytes) -> Element:
    """Return the tree, if `data` is exactly one well-formed BER element within the bounds.

    Of the certificates of a SignedData it has no parts: the same few come with every document, and are
    passed over once they were looked at.

    Raises:
        Unproven: `cms-malformed`.
    """
    return _parse(data, MAX_ELEMENTS, has_certificates=True)


@lru_cache(maxsize=256)
def _check_certificate(data: bytes) -> None:
    _parse(data, _MAX_CERTIFICATE_ELEMENTS, has_certificates=False)


def _parse(data: bytes, most: int, *, has_certificates: bool) -> Element:  # noqa: C901, PLR0912, PLR0915 - one pass, whole
    size = len(data)
    if not 0 < size <= MAX_BYTES:
        raise Unproven(_MALFORMED)
    inner = whole = Element(SEQUENCE, 0, 0, size, [])
    opened = [whole]
    at = 0
    for _ in range(most):
        limit = inner.limit
        # 1. The header lies within what it is in, and says no more than can be there.
        begin = at
        at += 2
        if at > limit:
            raise Unproven(_MALFORMED)
        tag, length = data[begin], data[begin + 1]
        if tag & _LONG_TAG == _LONG_TAG:
            raise Unproven(_MALFORMED)  # tags beyond 30 occur nowhere in CMS
        is_definite = length != _INDEFINITE
        if length > _INDEFINITE:
            octets = length - _INDEFINITE
            if octets > _MAX_LENGTH_BYTES or at + octets > limit:
                raise Unproven(_MALFORMED)
            length = int.from_bytes(data[at : at + octets], "big")
            at += octets
        # 2. The end-of-contents closes an indefinite length, and is nowhere else.
        if tag == 0:
            if length or inner.is_definite:
                raise Unproven(_MALFORMED)
            inner.limit, inner.end = begin, at
            opened.pop()
            inner = opened[-1]
        else:
            if is_definite:
                limit = at + length
                if limit > inner.limit:
                    raise Unproven(_MALFORMED)
            elif not tag & CONSTRUCTED:
                raise Unproven(_MALFORMED)
            # 3. A constructed element is gone into; a primitive one is passed over.
            if not tag & CONSTRUCTED:
                inner.parts.append(Element(tag, begin, at, limit, _NONE))
                at = limit
            else:
                found = Element(tag, begin, at, limit, [])
                found.is_definite = is_definite
                inner.parts.append(found)
                if (
                    has_certificates
                    and is_definite
                    and inner.tag == _CERTIFICATES
                    and tag == SEQUENCE
                    and len(opened) == _CERTIFICATES_DEPTH
                    and len(inner.parts) <= _MOST_CERTIFICATES
                ):
                    _check_certificate(data[begin:limit])
                    at = limit
                else:
                    opened.append(found)
                    inner = found
                    if len(opened) > MAX_DEPTH + 1:
                        raise Unproven(_MALFORMED)
        # 4. What has ended is left. The outermost element is one, and ends with the data.
        while inner.limit == at and inner.is_definite and inner is not whole:
            opened.pop()
            inner = opened[-1]
        if inner is whole:
            if at != size:
                raise Unproven(_MALFORMED)
            return whole.parts[0]
    raise Unproven(_MALFORMED)
