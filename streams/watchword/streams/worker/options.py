"""What a worker is started with."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Self

from watchword.handlers.join.records import JoinService
from watchword.schemas.requests import MAX_REQUEST_BYTES
from watchword.schemas.topics import JOIN_REQUESTS, JOIN_REQUESTS_DLQ, JOIN_RESPONSES
from watchword.streams.kafka_clients import KafkaConnection
from watchword.streams.worker.tracing import BatchTracing

MIB = 1024 * 1024

GREATEST_RECORD_BYTES = MAX_REQUEST_BYTES + 8192
"""The greatest record with its key, headers and overhead, as the topic allows it."""


@dataclass(frozen=True, slots=True)
class WorkerTopics:
    """The topics by name."""

    requests: str = JOIN_REQUESTS
    responses: str = JOIN_RESPONSES
    dead_letters: str = JOIN_REQUESTS_DLQ

    @classmethod
    def prefixed(cls, prefix: str) -> Self:
        """Return the names with something in front, as tests on a shared broker need them."""
        return cls(*(prefix + name for name in (JOIN_REQUESTS, JOIN_RESPONSES, JOIN_REQUESTS_DLQ)))


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """Bounds in numbers, bytes and seconds."""

    batch_records: int = 64
    batch_bytes: int = 16 * MIB
    batches_in_flight: int = 2
    held_records: int = 1024
    """Records in memory, from the fetch to the acknowledgement of their answers."""
    held_bytes: int = 64 * MIB
    session_timeout_s: float = 6.0
    """The outage of a worker's partitions after a SIGKILL."""
    heartbeat_s: float = 1.0
    max_poll_interval_s: float = 60.0
    """A source that does not turn for so long gives its partitions up."""
    metadata_age_s: float = 10.0
    """After it the client asks again which partitions there are; one that was added waits so long."""
    commit_every_s: float = 0.5
    revoke_s: float = 2.0
    """How long a rebalance waits for the batches in flight."""
    send_deadline_s: float = 10.0
    """After it, a producer that has not delivered is replaced."""
    stall_s: float = 5.0
    """How long the event loop may be blocked before the process ends."""
    memory_bytes: int | None = None
    """The address space that the process may have; None leaves it as it is."""
    drain_s: float = 10.0
    """How long SIGTERM takes at most."""
    clock_skew_s: float = 5.0
    """Further from PostgreSQL's clock than this a worker is not ready."""


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """Everything but the service."""

    kafka: KafkaConnection
    name: str
    """Stable from start to start and different for each worker (`group.instance.id`, KIP-345)."""
    group: str = "watchword-verifier"
    topics: WorkerTopics = field(default_factory=WorkerTopics)
    limits: WorkerLimits = field(default_factory=WorkerLimits)
    health_host: str = "127.0.0.1"
    health_port: int = 9090


@dataclass(frozen=True, slots=True)
class Judging:
    """The join service as the worker sees it. All are called in the worker's event loop."""

    service: JoinService
    problem: Callable[[], str | None]
    """Why requests cannot be judged now, for instance because no complete configuration is loaded.
    While there is a problem nothing is fetched; it must not block."""
    clock_skew: Callable[[], float | None]
    """Seconds by which the clock is off PostgreSQL's; None if that was not measured yet."""
    tracing: BatchTracing | None = None


ServiceFactory = Callable[[], AbstractAsyncContextManager[Judging]]
"""Opens the service when the event loop runs, and closes it when the worker has drained."""
