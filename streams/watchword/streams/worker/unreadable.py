"""Records that Kafka's client cannot parse: what we know of them, and how to read past them.

A record of a batch (format v2, KIP-98) is its length and then its body; all numbers are zigzag
varints:

    length | attributes: int8 | timestamp delta | offset delta
           | key length, key | value length, value
           | header count, then for each: name length, name, value length, value

The broker checks the lengths, but neither that a header's name is UTF-8 nor, in a batch that it
does not rewrite, that the offset deltas count up. So whoever may write to `join.requests` can put
such a record there, next to good ones.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from aiokafka.record.util import decode_varint

Headers = tuple[tuple[str, bytes | None], ...]


class Fault(StrEnum):
    """What is wrong with a record; a label of a metric and a header of a dead letter."""

    HEADER_NAME = "header-name"
    """The name of a header is not UTF-8. Key and value are known."""
    OFFSET = "offset"
    """It does not have the offset that its place in the batch gives it. Key and value are known."""
    RECORD = "record"
    """Its body cannot be parsed."""
    BATCH = "batch"
    """Its whole batch cannot be parsed."""
    CHECKSUM = "checksum"
    """The batch's CRC-32C is wrong, however often it is fetched."""
    COMPRESSION = "compression"
    """The batch's compression is one that this client does not have, or is broken, or a bomb."""
    CONTROL = "control"
    """A transaction's marker. It holds no request, takes up an offset, and is nobody's fault here."""


class Extent(StrEnum):
    """What the bytes of an `Unreadable` are."""

    VALUE = "value"
    """The record's value as it was sent."""
    RECORD = "record"
    """The record's body, from its attributes on; or what is left of a batch from here on."""
    BATCH = "batch"
    """The whole batch as the broker keeps it. Its other records carry nothing."""
    NOTHING = "nothing"
    """No bytes could be had, or they are with an earlier record of the same batch."""


class Unreadable(bytes):
    """Stands in the place of the value of a record that cannot be parsed.

    A class of its own rather than a header: nobody who writes to Kafka can make one.
    """

    fault: Fault
    extent: Extent

    @classmethod
    def of(
        cls, fault: Fault, content: bytes | None = None, extent: Extent = Extent.NOTHING
    ) -> Self:
        """Say what is wrong, and keep the bytes that there are."""
        made = cls(content or b"")
        made.fault = fault
        made.extent = Extent.NOTHING if content is None else extent
        return made


@dataclass(frozen=True, slots=True)
class Walked:
    """One record as the lenient reader found it. `value` is an `Unreadable` where it must be."""

    offset_delta: int
    timestamp_delta: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def walk(records: bytes, count: int) -> Iterator[Walked]:
    """Read the records of an uncompressed batch one by one; one that is broken costs only itself.

    Args:
        records: The batch without its header.
        count: How many records it says it has; as many are yielded.

    A record whose length is wrong takes the rest of the batch with it, for nobody knows where the
    next one begins: it gets all bytes that are left, those behind it none.
    """
    data = bytearray(records)
    position = 0
    for _ in range(count):
        try:
            length, start = decode_varint(data, position)
            end = start + length
        except (IndexError, ValueError):
            length, start, end = -1, position, position
        if length <= 0 or end > len(data):
            rest = bytes(data[position:]) or None
            position = len(data)
            yield _broken(Unreadable.of(Fault.RECORD, rest, Extent.RECORD))
            continue
        position = end
        yield _record(data[start:end])


def _record(body: bytearray) -> Walked:
    try:
        return _Reader(body).record()
    except (IndexError, ValueError):
        return _broken(Unreadable.of(Fault.RECORD, bytes(body), Extent.RECORD))


def _broken(value: Unreadable) -> Walked:
    return Walked(offset_delta=-1, timestamp_delta=0, key=None, value=value, headers=())


class _Reader:
    """Reads one record's body from front to back."""

    def __init__(self, body: bytearray) -> None:
        self._body = body
        self._position = 1  # The attributes say nothing yet (KIP-98).

    def record(self) -> Walked:
        timestamp_delta, offset_delta = self._number(), self._number()
        key, value = self._nullable(), self._nullable()
        headers: list[tuple[str, bytes | None]] = []
        all_names_are_text = True
        for _ in range(self._count()):
            name, content = self._bytes(self._count()), self._nullable()
            try:
                headers.append((name.decode(), content))
            except UnicodeDecodeError:
                all_names_are_text = False
        if self._position != len(self._body):
            raise ValueError
        if not all_names_are_text:
            value = Unreadable.of(Fault.HEADER_NAME, value, Extent.VALUE)
        return Walked(offset_delta, timestamp_delta, key, value, tuple(headers))

    def _number(self) -> int:
        number, self._position = decode_varint(self._body, self._position)
        return number

    def _count(self) -> int:
        number = self._number()
        if number < 0:
            raise ValueError
        return number

    def _nullable(self) -> bytes | None:
        length = self._number()
        return None if length < 0 else self._bytes(length)

    def _bytes(self, length: int) -> bytes:
        end = self._position + length
        if end > len(self._body):
            raise ValueError
        content = bytes(self._body[self._position : end])
        self._position = end
        return content
