"""What a relay needs to be told."""

from dataclasses import dataclass, field

from watchword.handlers.store.connection import Database
from watchword.streams.kafka_clients import KafkaConnection
from watchword.streams.lifecycle import Lifecycle
from watchword.streams.relay.tracing import RelayTracing


@dataclass(frozen=True, slots=True)
class RelayOptions:
    """The wiring and the limits of one relay."""

    database: Database
    kafka: KafkaConnection
    name: str
    """For logs and leases. A suffix of this start is added: a name that comes back is another owner."""

    lifecycle: Lifecycle = field(default_factory=Lifecycle)

    lease_s: float = 10.0
    """How long a shard stays with a relay that has gone silent."""

    wave_rows: int = 2_000
    """Greatest number of rows sent before their acknowledgements are awaited."""

    wave_s: float = 5.0
    """How long a wave may take; less if the lease ends before."""

    idle_s: float = 0.025
    """Rest after a look that found nothing: on average half of it is added to the way of an event."""

    store_idle_s: float = 30.0
    """How often cursors that moved over nothing are stored, so that a successor starts near."""

    pending_s: float = 5.0
    """How often the backlog is counted for the metrics."""

    tenant_topics: frozenset[str] = frozenset()
    """Tenants whose refusals go to a topic of their own as well."""

    tracing: RelayTracing | None = None
