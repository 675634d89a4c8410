"""Settings of the processes: worker, relay, keeper, gateway; and of their logs and health listeners."""

import socket
from pathlib import Path
from typing import Annotated

from pydantic import Field

from watchword.streams.logs import LogFormat, LogLevel
from watchword.streams.settings.section import Names, Port, Section

ProcessName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,100}$")]


def _host_name() -> str:
    return "".join(c if c.isalnum() or c in "._-" else "-" for c in socket.gethostname())[:100]


class LogSettings(Section):
    """How processes log; lines go to standard error."""

    level: LogLevel = "INFO"
    """`LOG_LEVEL` for short."""

    format: LogFormat = "json"
    """`json` for machines, `console` for people; `LOG_FORMAT` for short."""


class HealthSettings(Section):
    """The second listener of each process: /healthz, /readyz, /metrics."""

    host: str = "127.0.0.1"
    """Local unless configured: metrics say how a fleet is doing."""


class WorkerSettings(Section):
    """The verifier: `watchword worker`."""

    name: ProcessName = Field(default_factory=_host_name)
    """Stable from start to start (`group.instance.id`), and different for each worker: a restart within
    the session keeps its partitions. The host's name if not set."""

    group_id: str = "watchword-verifier"
    """The consumer group of all workers of a deployment."""

    batch_requests: Annotated[int, Field(ge=1, le=64)] = 64
    """Greatest batch. Bigger ones hold row locks longer; 64 is where the gain levels off."""

    batch_bytes: Annotated[int, Field(ge=1024 * 1024, le=16 * 1024 * 1024)] = 16 * 1024 * 1024
    """Greatest batch in bytes of requests, which bounds the worker's memory."""

    batches_in_flight: Annotated[int, Field(ge=1, le=2)] = 2
    """While one batch waits for PostgreSQL, another verifies."""

    session_timeout_s: Annotated[float, Field(ge=6.0, le=60.0)] = 6.0
    """The outage of a worker's partitions after a SIGKILL. Shorter is refused by brokers by default."""

    drain_s: Annotated[float, Field(ge=1.0, le=60.0)] = 10.0
    """How long SIGTERM waits for batches in flight. Must end before whoever sends SIGKILL loses patience."""

    stall_s: Annotated[float, Field(ge=1.0, le=300.0)] = 5.0
    """How long the event loop may be blocked before the worker ends (status 79): an attestor's code runs in it."""

    memory_bytes: Annotated[int, Field(ge=512 * 1024 * 1024)] = 4 * 1024 * 1024 * 1024
    """The address space that the worker may have (RLIMIT_AS). Who goes past it ends it (status 71); a container's
    own limit may come before. A worker has 120 MB to begin with; threads of attestors reserve some that they do not use."""

    clock_skew_s: Annotated[float, Field(ge=0.5, le=60.0)] = 5.0
    """Further from PostgreSQL's clock than this a worker is not ready."""

    health_port: Port = 9090
    """Where the worker serves its health."""


class RelaySettings(Section):
    """The way from the journal to Kafka: `watchword relay`."""

    wave_rows: Annotated[int, Field(ge=1, le=20_000)] = 2000
    """Greatest number of events sent before their acknowledgements are awaited."""

    lease_s: Annotated[float, Field(ge=2.0, le=120.0)] = 10.0
    """How long a shard stays with a relay that has gone silent: the outage after a SIGKILL."""

    idle_ms: Annotated[int, Field(ge=5, le=10_000)] = 25
    """Rest between two looks at a shard that had nothing. It is added to the way of every event."""

    health_port: Port = 9091
    """Where the relay serves its health."""


class KeeperSettings(Section):
    """Summaries, pruning, partitions: `watchword keeper`."""

    interval_s: Annotated[float, Field(ge=0.1, le=60.0)] = 1.0
    """Rest between two looks: the first summary of suppressed refusals is at most this much late."""

    period_s: Annotated[float, Field(ge=5.0, le=3600.0)] = 60.0
    """What one summary covers while refusals are held back."""

    lease_s: Annotated[float, Field(ge=2.0, le=300.0)] = 15.0
    """How long the work waits after a SIGKILL until a keeper that stands by takes over."""

    partition_days_ahead: Annotated[int, Field(ge=4, le=60)] = 7
    """For how many days ahead partitions are made; with less than three the keeper is not ready."""

    refusal_retention_days: Annotated[int, Field(ge=1, le=3650)] = 30
    """How long refusals can be searched in PostgreSQL. Whole days are dropped."""

    inbox_retention_h: Annotated[float, Field(gt=24.0, le=24.0 * 90)] = 48.0
    """How long an answer is remembered. Must outlive the retention of `join.requests`."""

    join_request_retention_days: Annotated[int, Field(ge=1, le=3650)] = 30
    """How long joins that were rejected, have expired or were used can be looked up in PostgreSQL."""

    command_retention_days: Annotated[int, Field(ge=1, le=3650)] = 30
    """How long commands to nodes that have ended can be looked up in PostgreSQL."""

    health_port: Port = 9092
    """Where the keeper serves its health."""


class GatewaySettings(Section):
    """The way in for machines: `watchword gateway`."""

    host: str = "127.0.0.1"
    """Where the gateway listens; 0.0.0.0 for all interfaces."""

    port: Port = 8080
    """The port that agents are told."""

    tls_certificate_file: Path | None = None
    """PEM chain of the listener; none means plain HTTP, for a proxy in front that ends TLS."""

    tls_key_file: Path | None = None
    """PEM key of that certificate, mode 0600."""

    trusted_proxies: Names = ()
    """Networks (or addresses) whose `X-Forwarded-For` is believed; anybody else's would defeat the limits per address."""

    requests_per_address: Annotated[int, Field(ge=1, le=100_000)] = 30
    """New requests that one address may send in `requests_window_s`."""

    requests_window_s: Annotated[float, Field(gt=0, le=3600)] = 10.0
    """The window of `requests_per_address`."""

    waiters_per_address: Annotated[int, Field(ge=1, le=10_000)] = 16
    """Long polls that one address may hold open at once."""

    waiters: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    """Long polls in all; beyond them the gateway answers at once."""

    answer_cache_bytes: Annotated[int, Field(ge=1024 * 1024)] = 256 * 1024 * 1024
    """How much of `join.responses` is kept in memory."""

    health_port: Port = 9093
    """Where the gateway serves its health."""
