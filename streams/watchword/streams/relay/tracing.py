"""What the relay lets somebody follow who knows what a span is; nothing of it is called where nobody does."""

from collections.abc import Sequence
from typing import Protocol

from watchword.handlers.store.relay import Row
from watchword.streams.relay.publisher import Outcome


class RelayTracing(Protocol):
    """Follows events out. It may not raise."""

    def sent(self, rows: Sequence[Row], outcome: Outcome, *, since_ns: int) -> None:
        """Know what became of rows whose sending began at `since_ns` and has just ended."""
        ...
