"""Records on their way: how many there may be, and where they wait for the next batch."""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from watchword.handlers.join.records import Incoming
from watchword.streams.worker import metrics
from watchword.streams.worker.tenures import Tenure
from watchword.streams.worker.unreadable import Unreadable

RECORD_OVERHEAD_BYTES = 512
"""What a record costs in memory beside its bytes, roughly."""


class Budget:
    """Bounds the records in memory, from the fetch until their answers are acknowledged."""

    def __init__(self, records: int, size: int, greatest_record: int) -> None:
        """Set the bounds.

        Args:
            records: How many records at most.
            size: How many bytes; may be passed by what one fetch returns.
            greatest_record: The bytes to reckon with for a record that was not seen yet.
        """
        self._records_left = records
        self._bytes_left = size
        self._greatest_record = greatest_record
        metrics.HELD.set_function(lambda: records - self._records_left)
        metrics.HELD_BYTES.set_function(lambda: size - self._bytes_left)
        self._freed = asyncio.Event()

    @property
    def room(self) -> int:
        """How many records, of whatever size, there is room for."""
        return max(0, min(self._records_left, self._bytes_left // self._greatest_record))

    def take(self, size: int) -> None:
        """Account for a record."""
        self._records_left -= 1
        self._bytes_left -= size

    def give_back(self, size: int) -> None:
        """Account for a record that is gone."""
        self._records_left += 1
        self._bytes_left += size
        self._freed.set()

    async def freed(self, within_s: float) -> None:
        """Return when something was given back, at the latest after this time."""
        self._freed.clear()
        try:
            async with asyncio.timeout(within_s):
                await self._freed.wait()
        except TimeoutError:
            return


@dataclass(slots=True, eq=False)
class Delivery:
    """One record, with what is needed to be done with it."""

    incoming: Incoming
    unreadable: Unreadable | None
    """Set if Kafka's client could not parse the record; then `incoming.value` is None."""
    tenure: Tenure
    size: int
    """Its share of the budget, in bytes."""


Deliveries = Sequence[Delivery]
"""What travels together, in order: a record by itself costs 11 µs on its way through a channel of faust's."""


class Backlog:
    """The records that wait for a batch, in the order of their arrival."""

    def __init__(self, budget: Budget) -> None:
        """Wait for nothing yet."""
        self._budget = budget
        self._waiting: deque[Delivery] = deque()
        self._arrived = asyncio.Event()

    def put(self, deliveries: Deliveries) -> None:
        """Let records wait."""
        self._waiting.extend(deliveries)
        self._arrived.set()

    async def take(self, records: int, size: int) -> list[Delivery]:
        """Return what waits, at least one record and within the bounds; wait only if there is none."""
        while True:
            if not self._waiting:
                self._arrived.clear()
                await self._arrived.wait()
            # What is ready to arrive in this turn of the loop comes along.
            await asyncio.sleep(0)
            if batch := self._cut(records, size):
                return batch

    def _cut(self, records: int, size: int) -> list[Delivery]:
        batch: list[Delivery] = []
        while self._waiting and len(batch) < records:
            if self._waiting[0].tenure.is_over:
                # Another worker has it by now, or will; it was not acknowledged.
                self._budget.give_back(self._waiting.popleft().size)
                continue
            size -= self._waiting[0].size
            if batch and size < 0:
                break
            batch.append(self._waiting.popleft())
        return batch

    def finish(self, delivery: Delivery) -> None:
        """Mark a record of a batch as answered."""
        delivery.tenure.prefix.done(delivery.incoming.offset)
        self._budget.give_back(delivery.size)

    def abandon(self, delivery: Delivery) -> None:
        """Give a record of a batch up, unanswered: Kafka delivers it again to whoever comes next."""
        self._budget.give_back(delivery.size)
