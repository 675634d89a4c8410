"""Which names of hardware can tell one machine from another, and their one spelling.

Boards ship with product UUIDs that are all zero, all F, or the same on every board; MAC addresses are
written in several ways, and a locally administered one is anybody's invention. None of them is a
proof: these functions only say whether a name is worth looking up.
"""

import re

_MAC_JUNK = re.compile(r"[-:.]")
_MAC = re.compile(r"[0-9a-f]{12}")
_UUID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}")

_NOT_ONE_MACHINES = 0x03
"""The bits of a MAC's first byte for "group" and "locally administered" (IEEE 802, 8.2)."""

KNOWN_BAD_UUIDS = frozenset(
    (
        # Placeholders of firmware that nobody replaced, each in both byte orders of SMBIOS (7.2.1).
        "03000200-0400-0500-0006-000700080009",
        "00020003-0004-0005-0006-000700080009",
        "12345678-1234-5678-90ab-cddeefaabbcc",
        "78563412-3412-7856-90ab-cddeefaabbcc",
        "12345678-1234-1234-1234-123456789abc",
        "78563412-3412-3412-1234-123456789abc",
        "11111111-2222-3333-4444-555555555555",
        "01234567-89ab-cdef-0123-456789abcdef",
        "67452301-ab89-efcd-0123-456789abcdef",
        "00000000-0000-0000-0000-000000000001",
        "4c4c4544-0000-2010-8020-80c04f202020",  # a Dell without its service tag
    )
)


def canonical_mac(text: str) -> str | None:
    """Return a MAC address as twelve lower-case hex digits, whatever its spelling; None if it is none."""
    bare = _MAC_JUNK.sub("", text.strip().lower())
    return bare if _MAC.fullmatch(bare) else None


def identifies(mac: str) -> bool:
    """Tell whether a canonical MAC is one adapter's: neither a group's, nor made up locally, nor all zero."""
    return mac != "0" * 12 and not int(mac[:2], 16) & _NOT_ONE_MACHINES


def canonical_uuid(text: str) -> str | None:
    """Return a product UUID in lower case with dashes; None if it is none."""
    bare = text.strip().lower()
    if not _UUID.fullmatch(bare):
        return None
    digits = bare.replace("-", "")
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def identifying_uuid(text: str | None) -> str | None:
    """Return a product UUID that can name one machine; None for none, junk, one byte repeated, or a known bad one."""
    found = None if text is None else canonical_uuid(text)
    if found is None or found in KNOWN_BAD_UUIDS:
        return None
    return None if found.replace("-", "") == found[:2] * 16 else found
