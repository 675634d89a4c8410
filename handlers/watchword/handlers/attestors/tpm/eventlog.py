"""A firmware's event log, replayed to the values that its PCRs must have.

"TCG PC Client Platform Firmware Profile" (PFP) 1.05, clause 10: TCG_PCR_EVENT (10.2.1) with SHA-1 alone, or a
first event that names the banks (TCG_EfiSpecIDEvent, 10.4.5.1) and TCG_PCR_EVENT2 (10.2.2) from then on. All
integers are little endian. The log is the machine's word: it counts only as far as its replay gives the
quoted values. Kinds of events are kept as numbers: new firmware brings new ones, and they are no fault.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from watchword.handlers.attestors.tpm.algorithms import BANKS, Alg, digest_size
from watchword.handlers.attestors.tpm.reader import Malformed

MAX_LOG_BYTES = 256 * 1024
MAX_EVENTS = 4096
MAX_PCR = 23
EV_NO_ACTION = 0x00000003
_SPEC_ID = b"Spec ID Event03\0"
_OLD_SPEC_ID = (b"Spec ID Event00\0", b"Spec ID Event02\0")
_STARTUP_LOCALITY = b"StartupLocality\0"
_MAX_ALGORITHMS = 16
_LEGACY_DIGEST_BYTES = 20


@dataclass(frozen=True, slots=True)
class Event:
    """One measurement: bank → digest, and the data that it is said to be about."""

    pcr: int
    kind: int
    digests: dict[int, bytes]
    data: bytes


@dataclass(frozen=True, slots=True)
class EventLog:
    """All events in order, the banks that each of them extends, and the locality that the TPM was started from."""

    events: tuple[Event, ...]
    banks: tuple[int, ...]
    locality: int

    def replay(self, bank: int) -> dict[int, bytes]:
        """Return the values that the log's PCRs have in a bank of it (PFP, 10.4.4 and 3.3.4).

        PCR 0 begins at the locality that started the TPM; EV_NO_ACTION extends nothing.
        """
        size = digest_size(bank)
        name = BANKS[bank]
        values: dict[int, bytes] = {}
        for event in self.events:
            if event.kind == EV_NO_ACTION or bank not in event.digests:
                continue
            start = bytes(size - 1) + bytes((self.locality if event.pcr == 0 else 0,))
            before = values.get(event.pcr, start)
            values[event.pcr] = hashlib.new(name, before + event.digests[bank]).digest()
        return values


class _Cursor:
    """Little-endian reads that never go beyond the end."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at

    def take(self, size: int) -> bytes:
        end = self.at + size
        if end > len(self.data):
            message = "a length goes beyond the log"
            raise Malformed(message)
        found = self.data[self.at : end]
        self.at = end
        return found

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def ended(self) -> bool:
        return self.at == len(self.data)


def read_event_log(data: bytes) -> EventLog:
    """Return a log of either form.

    Raises:
        Malformed: it is empty, too large or too long, cut, or names a PCR or a digest that there is not.
    """
    if not 0 < len(data) <= MAX_LOG_BYTES:
        message = "no log, or one that is too large"
        raise Malformed(message)
    cursor = _Cursor(data)
    first = _legacy_event(cursor)
    sizes, beyond = _spec_id(first)
    cursor.take(beyond)
    if sizes is None:
        events = [first]
        banks: tuple[int, ...] = (int(Alg.SHA1),)
    else:
        events = []
        banks = tuple(bank for bank in sizes if bank in BANKS)
    while not cursor.ended():
        if len(events) == MAX_EVENTS:
            message = "too many events"
            raise Malformed(message)
        events.append(_legacy_event(cursor) if sizes is None else _event(cursor, sizes))
    return EventLog(tuple(events), banks, _locality(events))


def _legacy_event(cursor: _Cursor) -> Event:
    """Read a TCG_PCR_EVENT (PFP, 10.2.1)."""
    pcr, kind = _pcr(cursor), cursor.number(4)
    digests = {int(Alg.SHA1): cursor.take(_LEGACY_DIGEST_BYTES)}
    return Event(pcr, kind, digests, cursor.take(cursor.number(4)))


def _event(cursor: _Cursor, sizes: dict[int, int]) -> Event:
    """Read a TCG_PCR_EVENT2 (PFP, 10.2.2): at most one digest of each bank that the first event named.

    A bank without one is not extended, and replays to another value than its PCR has.
    """
    pcr, kind = _pcr(cursor), cursor.number(4)
    count = cursor.number(4)
    digests: dict[int, bytes] = {}
    if count > _MAX_ALGORITHMS:
        message = "too many digests"
        raise Malformed(message)
    for _ in range(count):
        algorithm = cursor.number(2)
        if algorithm not in sizes or algorithm in digests:
            message = "a digest of another bank"
            raise Malformed(message)
        digests[algorithm] = cursor.take(sizes[algorithm])
    return Event(pcr, kind, digests, cursor.take(cursor.number(4)))


def _pcr(cursor: _Cursor) -> int:
    pcr = cursor.number(4)
    if pcr > MAX_PCR:
        message = "no such PCR"
        raise Malformed(message)
    return pcr


def _spec_id(first: Event) -> tuple[dict[int, int] | None, int]:
    """Return bank → size of digest from a TCG_EfiSpecIDEvent (PFP, 10.4.5.1); None for a log of SHA-1 alone.

    The second number is how much of the vendor's own data lies beyond the event: some firmware does not
    count them in its size.
    """
    if first.kind != EV_NO_ACTION or first.data.startswith(_OLD_SPEC_ID):
        return None, 0
    if not first.data.startswith(_SPEC_ID):
        message = "a first event that says nothing of the log"
        raise Malformed(message)
    cursor = _Cursor(first.data, len(_SPEC_ID))
    cursor.take(8)  # platform class, versions, errata, size of an integer
    count = cursor.number(4)
    if not 0 < count <= _MAX_ALGORITHMS:
        message = "no banks, or too many"
        raise Malformed(message)
    sizes: dict[int, int] = {}
    for _ in range(count):
        algorithm, size = cursor.number(2), cursor.number(2)
        if algorithm in BANKS and size != digest_size(algorithm):
            message = "a digest of another size"
            raise Malformed(message)
        sizes[algorithm] = size
    return sizes, max(0, cursor.number(1) + cursor.at - len(first.data))


def _locality(events: Sequence[Event]) -> int:
    """Return the locality of a TCG_EfiStartupLocalityEvent (PFP, 10.4.5.3); 0 where none is written."""
    for event in events:
        if (
            event.kind == EV_NO_ACTION
            and event.pcr == 0
            and event.data.startswith(_STARTUP_LOCALITY)
            and len(event.data) == len(_STARTUP_LOCALITY) + 1
        ):
            return event.data[-1]
    return 0
