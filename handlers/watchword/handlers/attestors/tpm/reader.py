"""Reads what a TPM marshals: big-endian integers and sized buffers, never beyond the end.

"TPM 2.0 Library" in this folder is the TCG's specification, revision 1.59: Part 1 is the architecture,
Part 2 the structures.
"""

from watchword.handlers.errors import WatchwordError

_BEYOND = "a length goes beyond the data"


class Malformed(WatchwordError):
    """Bytes from a machine are not what the specification says; the only error of every parser here."""


class Reader:
    """A position in bytes. Every read checks the bound first and raises `Malformed` beyond it."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        """Begin at the first byte."""
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes."""
        end = self._at + size
        if end > len(self._data):
            raise Malformed(_BEYOND)
        found = self._data[self._at : end]
        self._at = end
        return found

    def u8(self) -> int:
        """Return a UINT8."""
        return self.take(1)[0]

    def u16(self) -> int:
        """Return a UINT16 (Part 2, 5.1: everything is big endian)."""
        at, end = self._at, self._at + 2
        if end > len(self._data):
            raise Malformed(_BEYOND)
        self._at = end
        return self._data[at] << 8 | self._data[at + 1]

    def u32(self) -> int:
        """Return a UINT32."""
        return int.from_bytes(self.take(4), "big")

    def u64(self) -> int:
        """Return a UINT64."""
        return int.from_bytes(self.take(8), "big")

    def sized(self, limit: int) -> bytes:
        """Return the buffer of a TPM2B (Part 2, 10.4.1): a UINT16 of size, at most `limit`, and the bytes."""
        # By hand and not by `u16` and `take`: public areas and quotes are made of these.
        data, at = self._data, self._at + 2
        if at > len(data):
            raise Malformed(_BEYOND)
        size = data[at - 2] << 8 | data[at - 1]
        if size > limit:
            message = "a buffer is larger than its kind may be"
            raise Malformed(message)
        end = at + size
        if end > len(data):
            raise Malformed(_BEYOND)
        self._at = end
        return data[at:end]

    def end(self) -> None:
        """Return only if every byte was read."""
        if self._at != len(self._data):
            message = "bytes are left over"
            raise Malformed(message)


def sized(data: bytes) -> bytes:
    """Return a buffer as a TPM2B: its size as a UINT16, then itself."""
    return len(data).to_bytes(2, "big") + data
