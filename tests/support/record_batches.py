"""Batches of records as only a hostile producer makes them."""

import gzip
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from aiokafka import AIOKafkaProducer
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c

NAME, NOT_TEXT = b"xx-of-header", b"\xff\xfe-of-header"
GZIP, LZ4, CONTROL = 0x01, 0x03, 0x20


@dataclass
class Batch:
    """A batch as a producer makes it, and the ways to break it."""

    values: Sequence[bytes | None]
    base: int = 0
    deltas: Sequence[int] = ()
    named: Sequence[int] = ()
    """The records that have a header `NAME`."""
    attributes: int = 0
    last_delta: int | None = None
    raw: bytes = field(init=False)

    def __post_init__(self) -> None:
        """Build it."""
        builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 24)
        for index, value in enumerate(self.values):
            headers: list[tuple[str, bytes | None]] = []
            if index in self.named:
                headers.append((NAME.decode(), b"h"))
            delta = self.deltas[index] if self.deltas else index
            builder.append(delta, 1000 + index, b"key-%d" % index, value, headers)
        self.raw = bytes(builder.build())
        self.sign()

    def sign(self, body: bytes | None = None) -> None:
        """Write the header as a broker would, which looks at it and not into the records."""
        batch = bytearray(self.raw if body is None else self.raw[:61] + body)
        last = len(self.values) - 1 if self.last_delta is None else self.last_delta
        struct.pack_into(">qi", batch, 0, self.base, len(batch) - 12)
        struct.pack_into(">hi", batch, 21, self.attributes, last)
        struct.pack_into(">I", batch, 17, calc_crc32c(batch[21:]))
        self.raw = bytes(batch)

    def renamed(self) -> "Batch":
        self.sign(self.raw[61:].replace(NAME, NOT_TEXT))
        return self

    def gzipped(self) -> "Batch":
        self.attributes |= GZIP
        self.sign(gzip.compress(self.raw[61:]))
        return self


async def send_raw(servers: str, topic: str, *batches: bytes, partition: int = 0) -> None:
    """Produce batches just as they are, one after the other; the broker sets their base offsets."""
    producer = AIOKafkaProducer(bootstrap_servers=servers, acks="all", enable_idempotence=False)
    await producer.start()
    try:
        for raw in batches:
            builder = producer.create_batch()
            builder.append(timestamp=None, key=b"k", value=b"v")
            builder.close()
            builder._buffer = raw
            await (await producer.send_batch(builder, topic, partition=partition))
    finally:
        await producer.stop()
