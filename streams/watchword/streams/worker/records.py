"""Guards aiokafka's record parser, so that a record it cannot parse costs nobody else anything.

aiokafka parses inside its fetcher: there an exception drops what was fetched of other partitions
and comes back with the next fetch, for ever, in every worker of the group. So the class that cuts
a fetched buffer into batches is replaced, in the fetcher's module, by `GuardedRecords`, which
promises two things:

* it does not raise. What cannot be parsed is delivered as a record whose value is an `Unreadable`;
* it is dense: each offset from a batch's first to its last is delivered exactly once and in order,
  also where a record lies about its offset, where a batch is unreadable as a whole, and where a
  transaction left a marker. So to a reader of a topic that is not compacted, a gap means a loss.

Good records still take aiokafka's own (compiled) parser. The replacement holds for the whole
process; other consumers in it see the same, and for good records nothing else than before.

The seam is two private names, `aiokafka.consumer.fetcher.MemoryRecords` and the methods that the
fetcher's `PartitionRecords` calls on it and on its batches (`aiokafka.record._protocols`). That is
why the version of aiokafka is pinned exactly, and `install` refuses any other.
"""

import struct
import zlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Protocol

import aiokafka
from aiokafka.consumer import fetcher
from aiokafka.record.default_records import DefaultRecordBatch

from watchword.handlers.errors import WatchwordError
from watchword.streams.worker.unreadable import Extent, Fault, Headers, Unreadable, walk

PINNED_AIOKAFKA = "0.14.0"

MAX_EXPANDED_BYTES = 16 * 1024 * 1024
"""The greatest batch after decompression. The topic keeps its batches uncompressed
(`compression.type`), so this holds only where it was made differently: without it, 512 KiB of gzip
are half a gigabyte of memory."""

_OVERHEAD = struct.Struct(">qi")
"""Base offset and length, in front of every batch of whatever format."""

_HEADER = struct.Struct(">qiibIhiqqqhii")
"""Base offset, length, leader epoch, magic, CRC, attributes, last offset delta, first and greatest
timestamp, producer id and epoch, base sequence, count of records."""

_ATTRIBUTES_AT = struct.calcsize(">qiibI")
_MAGIC_V2 = 2
_CODEC_MASK = 0x07
_LOG_APPEND_TIME_MASK = 0x08
_CONTROL_MASK = 0x20
_GZIP = 1

_REFETCHES = 2
"""How often a batch with a wrong checksum is fetched again before it counts as stored that way."""

_GREATEST_UNCHECKED_DELTA = 1 << 16
"""Where the checksum is wrong, a header that claims more records than this is not believed."""


class WrongVersion(WatchwordError):
    """A library that is pinned exactly has another version."""


def install() -> None:
    """Guard every consumer of this process from now on; doing it twice does nothing.

    Raises:
        WrongVersion: this is not the aiokafka that the guard was written for.
    """
    if aiokafka.__version__ != PINNED_AIOKAFKA:
        message = (
            f"aiokafka {aiokafka.__version__} is installed; the guard is for {PINNED_AIOKAFKA}"
        )
        raise WrongVersion(message)
    setattr(fetcher, "MemoryRecords", GuardedRecords)  # noqa: B010 - a private name, on purpose


class Parsed(Protocol):
    """What the fetcher reads of a record; aiokafka's own `DefaultRecord` is one."""

    @property
    def offset(self) -> int: ...  # noqa: D102
    @property
    def timestamp(self) -> int: ...  # noqa: D102
    @property
    def timestamp_type(self) -> int: ...  # noqa: D102
    @property
    def key(self) -> bytes | None: ...  # noqa: D102
    @property
    def value(self) -> bytes | None: ...  # noqa: D102
    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]: ...  # noqa: D102
    @property
    def checksum(self) -> None: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Record:
    """A record that we had to make ourselves."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    checksum: None = None


class GuardedRecords:
    """The batches of one fetched buffer; takes the place of aiokafka's `MemoryRecords`."""

    def __init__(self, bytes_data: bytes) -> None:
        """Take what a broker sent for one partition."""
        self._data = bytes_data
        self._position = 0
        self._next = self._cut()

    def size_in_bytes(self) -> int:
        """Return the size of the buffer."""
        return len(self._data)

    def has_next(self) -> bool:
        """Tell whether a whole batch is left; a broker may cut off the last."""
        return self._next is not None

    def next_batch(self) -> "GuardedBatch | None":
        """Return the next batch."""
        batch = self._next
        # What comes behind a batch that is to be fetched again must wait for it.
        self._next = None if batch is None or batch.is_to_be_refetched else self._cut()
        return batch

    def _cut(self) -> "GuardedBatch | None":
        left = len(self._data) - self._position
        if left < _OVERHEAD.size:
            return None
        base_offset, length = _OVERHEAD.unpack_from(self._data, self._position)
        size = _OVERHEAD.size + length
        if size > left:
            return None
        if size < _HEADER.size:
            # Nobody knows where the next batch begins.
            size = left
        start, self._position = self._position, self._position + size
        return GuardedBatch(base_offset, self._data[start : start + size])


class GuardedBatch:
    """One batch; takes the place of aiokafka's `DefaultRecordBatch`."""

    is_control_batch = False
    """The fetcher would leave its offset out."""
    is_transactional = False
    producer_id = None

    def __init__(self, base_offset: int, raw: bytes) -> None:
        """Read the header."""
        self._raw = raw
        self._fault: Fault | None = Fault.BATCH
        self.base_offset = base_offset
        self.next_offset = base_offset + 1
        self.is_to_be_refetched = False
        self._attributes = 0
        if len(raw) < _HEADER.size:
            return
        _, _, _, magic, _, attributes, last_delta, first, greatest, *_ = _HEADER.unpack_from(raw)
        if magic != _MAGIC_V2:
            return
        self._attributes = attributes
        self._first_timestamp: int = first
        self._timestamp: int = greatest
        self._parsed = DefaultRecordBatch(raw)
        if not self._parsed.validate_crc():
            self._fault = Fault.CHECKSUM
            if _seen_wrong.again(raw):
                # Nothing is delivered and the position stays, so the fetcher asks for it again.
                self.is_to_be_refetched = True
                self.next_offset = base_offset
                return
            if last_delta > _GREATEST_UNCHECKED_DELTA:
                return
        elif attributes & _CONTROL_MASK:
            self._fault = Fault.CONTROL
        else:
            self._fault = None
        self.next_offset = base_offset + 1 + max(0, last_delta)

    def validate_crc(self) -> bool:
        """Say yes: a wrong one has become a fault."""
        return True

    def __iter__(self) -> Iterator[Parsed]:
        """Yield one record for each offset of the batch."""
        offset = self.base_offset
        for record in self._faulty() if self._fault else self._readable():
            if offset == self.next_offset:
                return
            yield record if record.offset == offset else self._moved(record, offset)
            offset += 1
        while offset < self.next_offset:
            yield self._unreadable(offset, Unreadable.of(Fault.BATCH))
            offset += 1

    def _readable(self) -> Iterator[Parsed]:
        raw, parsed = self._raw, self._parsed
        if self._attributes & _CODEC_MASK:
            try:
                raw = self._expanded()
            except (zlib.error, ValueError):
                self._fault = Fault.COMPRESSION
                yield from self._faulty()
                return
            parsed = DefaultRecordBatch(raw)
        delivered = 0
        try:
            for record in parsed:
                yield record
                delivered += 1
        except Exception:  # noqa: BLE001 - the parser's exceptions are not documented, and hostile bytes choose among them
            yield from self._walked(raw[_HEADER.size :], delivered)

    def _walked(self, records: bytes, delivered: int) -> Iterator[Record]:
        """Read on where the parser gave up; its own state is of no use then."""
        count = self.next_offset - self.base_offset
        for index, walked in enumerate(walk(records, count)):
            if index < delivered:
                continue
            is_broken = isinstance(walked.value, Unreadable) and walked.value.fault is Fault.RECORD
            delta = index if is_broken else walked.offset_delta
            yield Record(
                self.base_offset + delta,
                self._timestamp_of(walked.timestamp_delta),
                self._timestamp_type,
                walked.key,
                walked.value,
                walked.headers,
            )

    def _faulty(self) -> Iterator[Record]:
        fault = self._fault or Fault.BATCH
        for offset in range(self.base_offset, self.next_offset):
            content = (
                self._raw if offset == self.base_offset and fault is not Fault.CONTROL else None
            )
            yield self._unreadable(offset, Unreadable.of(fault, content, Extent.BATCH))

    def _moved(self, record: Parsed, offset: int) -> Record:
        """Put a record that claims another offset where its place in the batch is."""
        value = record.value
        if not isinstance(value, Unreadable):
            value = Unreadable.of(Fault.OFFSET, value, Extent.VALUE)
        return Record(
            offset,
            record.timestamp,
            record.timestamp_type,
            record.key,
            value,
            tuple(record.headers),
        )

    def _unreadable(self, offset: int, value: Unreadable) -> Record:
        return Record(offset, -1, self._timestamp_type, None, value, ())

    @property
    def _timestamp_type(self) -> int:
        return int(bool(self._attributes & _LOG_APPEND_TIME_MASK))

    def _timestamp_of(self, delta: int) -> int:
        return self._timestamp if self._timestamp_type else self._first_timestamp + delta

    def _expanded(self) -> bytes:
        """Return the batch without its compression.

        Raises:
            ValueError: the codec is not ours (aiokafka needs another package for it), or it is a bomb.
            zlib.error: it is broken.
        """
        if self._attributes & _CODEC_MASK != _GZIP:
            message = "unsupported compression"
            raise ValueError(message)
        header = bytearray(self._raw[: _HEADER.size])
        struct.pack_into(">h", header, _ATTRIBUTES_AT, self._attributes & ~_CODEC_MASK)
        return bytes(header) + _gunzip(self._raw[_HEADER.size :])


def _gunzip(data: bytes) -> bytes:
    """Expand one or more gzip members (RFC 1952), up to the limit."""
    expanded = bytearray()
    while data:
        member = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        expanded += member.decompress(data, MAX_EXPANDED_BYTES + 1 - len(expanded))
        if len(expanded) > MAX_EXPANDED_BYTES or not member.eof:
            message = "too large, or cut off"
            raise ValueError(message)
        data = member.unused_data
    return bytes(expanded)


class _SeenWrong:
    """Counts how often the very same batch came with a wrong checksum."""

    def __init__(self, most: int = 64) -> None:
        self._most = most
        self._times: OrderedDict[bytes, int] = OrderedDict()

    def again(self, raw: bytes) -> bool:
        """Tell whether to fetch it again, in case the way from the broker did it."""
        digest = sha256(raw).digest()
        times = self._times.pop(digest, 0) + 1
        self._times[digest] = times
        if len(self._times) > self._most:
            self._times.popitem(last=False)
        return times <= _REFETCHES


_seen_wrong = _SeenWrong()
