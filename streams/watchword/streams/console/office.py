"""What every resource of the console works with."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from watchword.handlers.kinds import BUILT_IN
from watchword.handlers.operators.access import Access
from watchword.handlers.operators.desk import Desk
from watchword.handlers.operators.refusals import Reasons
from watchword.handlers.store.connection import Database
from watchword.streams.console.expiries import Expiry
from watchword.streams.console.lag import Lag, not_configured


def _no_attestors() -> Sequence[Mapping[str, Any]]:
    return ()


def _no_expiries() -> Sequence[Expiry]:
    return ()


@dataclass(frozen=True, slots=True)
class Office:
    """The database, the deployment's name, and what the configuration says of attestors, anchors and kinds of commands."""

    database: Database
    cluster: str
    reasons: Reasons = field(default_factory=Reasons)
    attestors: Callable[[], Sequence[Mapping[str, Any]]] = _no_attestors
    """Rows as `watchword attestors list` shows them."""
    expiries: Callable[[], Sequence[Expiry]] = _no_expiries
    """Certificates in files that this process can read, and when they end."""
    lag: Callable[[], Awaitable[Lag]] = not_configured
    """How many requests wait in Kafka."""
    kinds: frozenset[str] = BUILT_IN
    """The registered kinds of commands."""

    def desk(self, access: Access) -> Desk:
        """Return an operator's desk."""
        return Desk(self.database, access, self.cluster, self.kinds)
