"""What the worker lets somebody follow who knows what a span is; nothing of it is called where nobody does."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from watchword.streams.worker.backlog import Delivery


class BatchTracing(Protocol):
    """Follows batches. None of it may raise."""

    def batch(self, batch: Sequence[Delivery]) -> AbstractContextManager[None]:
        """Follow a batch from its beginning until it is answered; gives each record its `incoming.traceparent`."""
        ...

    def sending(self, records: int) -> AbstractContextManager[None]:
        """Follow the sending of what a batch came to: so many answers and dead letters."""
        ...
