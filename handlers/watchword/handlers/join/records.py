"""What goes into the join service and what comes out of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Incoming:
    """One record of `join.requests`, as received. `value` None is a tombstone, which nobody should send."""

    value: bytes | None
    topic: str
    partition: int
    offset: int
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    traceparent: str | None = None
    """The span in which this deployment judges it, for the events that come of it; never what a machine sent."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What to do with one incoming record, once its transaction has committed.

    `key` and `value` go to `join.responses`. `dead_letter` is the reason (`undecodable` …) why the
    record's bytes have to go to the dead-letter topic as well, else None.
    """

    key: bytes
    value: bytes
    outcome: str
    dead_letter: str | None = None


class JoinService(Protocol):
    """Judges requests. Safe to call from several tasks at once; each call is one batch."""

    async def judge(self, batch: Sequence[Incoming]) -> list[Answer]:
        """Return one answer for each record, in order, after everything has committed.

        Waits for PostgreSQL and the signer for ever, with jitter; raises only on cancellation
        (then nothing that is not committed has had an effect), on a bug, or with `MemoryError`: then
        end the process, for nothing that it still does can be relied on.
        """
        ...

    def taken_over(self) -> None:
        """Know that requests may come from now on that others had begun to judge, and have ended with."""
        ...

    async def quarantine(self, record: Incoming, reason: str) -> None:
        """Record a request that never became bytes (the Kafka client could not parse it)."""
        ...
