"""The little DER (ITU-T X.690) that is read before OpenSSL and written without it.

Only tags of one byte and lengths up to 65535 occur here, and only the one DER spelling is taken.
"""

from watchword.handlers.errors import InvalidInput

INTEGER = 0x02
BIT_STRING = 0x03
OCTET_STRING = 0x04
SEQUENCE = 0x30

_SHORT = 0x80
_ONE_BYTE = 0x81
_TWO_BYTES = 0x82


def tlv(tag: int, content: bytes) -> bytes:
    """Return tag, length and content, for a content of at most 65535 bytes."""
    length = len(content)
    if length < _SHORT:
        return bytes((tag, length)) + content
    if length <= 0xFF:  # noqa: PLR2004 - what one byte holds
        return bytes((tag, _ONE_BYTE, length)) + content
    return bytes((tag, _TWO_BYTES)) + length.to_bytes(2, "big") + content


def unsigned(value: int) -> bytes:
    """Return an INTEGER that is not negative: the fewest bytes, the top bit clear."""
    return tlv(INTEGER, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def read(data: bytes, at: int, tag: int) -> tuple[int, int]:
    """Return where the content of the element at `at` begins and ends.

    Raises:
        InvalidInput: `csr-malformed`: another tag, a length that is not DER's shortest, or one
            that goes beyond the data.
    """
    try:
        length = data[at + 1]
        start = at + 2
        if length >= _SHORT:
            size = length - _SHORT
            start += size
            length = int.from_bytes(data[at + 2 : start], "big")
            # The shortest form (X.690, 10.1): one byte from 128 on, two bytes from 256 on.
            if size not in (1, 2) or length < _SHORT or length >> (8 * (size - 1)) == 0:
                raise InvalidInput(_MALFORMED)
        end = start + length
        if data[at] != tag or end > len(data):
            raise InvalidInput(_MALFORMED)
    except IndexError:
        raise InvalidInput(_MALFORMED) from None
    return start, end


_MALFORMED = "csr-malformed"
