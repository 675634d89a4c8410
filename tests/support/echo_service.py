"""A join service that answers with what it was asked, and can be made to wait."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from watchword.handlers.join.records import Answer, Incoming

Coordinates = tuple[int, int]
"""Partition and offset."""


@dataclass
class EchoService:
    """Fulfils `JoinService`."""

    value_of: Callable[[Incoming], bytes] = lambda incoming: incoming.value or b"nothing"
    dead_letter_of: Callable[[Incoming], str | None] = lambda _: None
    judged: list[Incoming] = field(default_factory=list[Incoming])
    batches: list[int] = field(default_factory=list[int])
    quarantined: list[tuple[Incoming, str]] = field(default_factory=list[tuple[Incoming, str]])
    running: int = 0
    most_running: int = 0
    held: dict[Coordinates, asyncio.Event] = field(default_factory=dict[Coordinates, asyncio.Event])

    def hold(self, partition: int, offset: int) -> asyncio.Event:
        """Let the batch with this record wait until the event is set."""
        return self.held.setdefault((partition, offset), asyncio.Event())

    @property
    def times_judged(self) -> Counter[Coordinates]:
        """How often each record was judged."""
        return Counter((i.partition, i.offset) for i in self.judged)

    async def judge(self, batch: Sequence[Incoming]) -> list[Answer]:
        """Answer each record."""
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        self.judged += batch
        self.batches.append(len(batch))
        try:
            for incoming in batch:
                if event := self.held.get((incoming.partition, incoming.offset)):
                    await event.wait()
        finally:
            self.running -= 1
        return [self._answer(incoming) for incoming in batch]

    async def quarantine(self, record: Incoming, reason: str) -> None:
        """Note the record."""
        self.quarantined.append((record, reason))

    def taken_over(self) -> None:
        """Nothing is remembered of others."""

    def _answer(self, incoming: Incoming) -> Answer:
        value = self.value_of(incoming)
        return Answer(
            key=incoming.key or sha256(value).digest(),
            value=value,
            outcome="joined",
            dead_letter=self.dead_letter_of(incoming),
        )
