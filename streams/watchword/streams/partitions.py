"""The partition that every default client of Kafka chooses for a key, in a third of aiokafka's time.

The Java client's murmur2 over whole words. A record without a key may go anywhere.
https://github.com/apache/kafka/blob/4.0.0/clients/src/main/java/org/apache/kafka/common/utils/Utils.java
"""

import random
import struct
from collections.abc import Sequence

_SEED = 0x9747B28C
_FACTOR = 0x5BD1E995
_WORD = 0xFFFFFFFF


def default_partition(key: bytes | None, every: Sequence[int], available: Sequence[int]) -> int:
    """Return one of `every` (in ascending order) for a key, or one of `available` for none."""
    if key is None:
        return random.choice(available or every)  # noqa: S311 - no secret
    return every[(murmur2(key) & 0x7FFFFFFF) % len(every)]


def murmur2(key: bytes) -> int:
    """Return the 32-bit hash of a key, without a sign."""
    length = len(key)
    words, left = divmod(length, 4)
    hashed = _SEED ^ length
    for word in struct.unpack_from(f"<{words}I", key):
        mixed = (word * _FACTOR) & _WORD
        mixed = ((mixed ^ (mixed >> 24)) * _FACTOR) & _WORD
        hashed = ((hashed * _FACTOR) & _WORD) ^ mixed
    if left:
        hashed ^= int.from_bytes(key[-left:], "little")
        hashed = (hashed * _FACTOR) & _WORD
    hashed ^= hashed >> 13
    hashed = (hashed * _FACTOR) & _WORD
    return hashed ^ (hashed >> 15)
