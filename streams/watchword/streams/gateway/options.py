"""What a gateway is told when it starts. Plain values; who reads settings makes them."""

from dataclasses import dataclass, field
from pathlib import Path

from watchword.schemas.requests import MAX_REQUEST_BYTES
from watchword.schemas.topics import JOIN_REQUESTS, JOIN_RESPONSES, TRUST_BUNDLE
from watchword.streams.gateway.tracing import GatewayTracing, Untraced
from watchword.streams.kafka_clients import KafkaConnection

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The listener's certificate chain and key, PEM. They are read again when they change."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is taken from one address, and from all."""

    request_bytes: int = MAX_REQUEST_BYTES
    """Greatest body; not a byte more of it is kept."""
    header_bytes: int = 16 * 1024
    """Names and values of all headers of a request together."""
    headers: int = 64
    """Headers of a request."""
    requests_per_address: int = 30
    """Valid join requests that one address may send in `requests_window_s`. Junk does not count,
    so that a noisy neighbour behind the same address keeps nobody out."""
    requests_window_s: float = 10.0
    arrivals_per_address: int = 1000
    """HTTP requests of any kind that one address may send in a second, looked at or not."""
    waiters_per_address: int = 16
    """Long polls that one address may hold open at once."""
    waiters: int = 10_000
    """Long polls in all."""
    connections: int = 12_000
    """Open connections in all; lowered if the process may not open so many files."""
    connections_per_address: int = 1024
    """Open connections of one address that is no trusted proxy."""
    body_bytes_per_address: int = 8 * _MIB
    """Bodies of one address held in memory at once."""
    body_bytes: int = 64 * _MIB
    """Bodies held in memory at once."""
    sends_in_flight: int = 2000
    """Requests on their way to Kafka at once, at most; fewer while Kafka, or the gateway, is slow."""
    turns_per_s: float = 100.0
    """Machines that are turned away are told to come again one after the other, so many in a second; more if more are served."""
    addresses: int = 65_536
    """Addresses that the limiters remember; the least recently seen is forgotten, with a full bucket."""
    answers: int = 200_000
    """Requests whose answers are kept."""
    answer_bytes: int = 256 * _MIB
    """Bytes of answers that are kept."""
    answers_per_request: int = 8
    """Distinct answers that are kept for one request."""
    log_lines_per_second: int = 100
    """Lines of the access log; what is beyond them is counted in the next line."""


@dataclass(frozen=True, slots=True)
class Timings:
    """Deadlines, in seconds."""

    tls_handshake_s: float = 5.0
    head_s: float = 10.0
    """From a request's first byte (or a connection's opening) to the end of its headers."""
    body_s: float = 10.0
    """From the end of the headers to the end of the body."""
    write_s: float = 10.0
    """How long a reader may leave its answer untaken."""
    keep_alive_s: float = 75.0
    """How long an idle connection stays; longer than a load balancer's own 60 s."""
    send_s: float = 5.0
    """From a good request to Kafka's acknowledgement."""
    resend_window_s: float = 5.0
    """A copy of a request that is still without an answer is not sent to Kafka again so soon."""
    max_wait_s: int = 25
    """Longest long poll; shorter than the 30 s after which middle boxes lose patience."""
    answer_ttl_s: float = 900.0
    lookback_s: float = 600.0
    """How far back `join.responses` is read at the start."""
    drain_s: float = 6.0
    """How long requests in flight may take after SIGTERM; closing Kafka's clients takes up to 3 s more."""
    retry_after_s: int = 1
    """What a machine is told whose request was taken, whatever its state."""
    turn_s: float = 60.0
    """The longest that a machine is turned away for."""


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    """All of it. `topic_prefix` goes before the three topic names."""

    kafka: KafkaConnection
    host: str = "127.0.0.1"
    port: int = 8080
    """0 takes a free one."""
    tls: TlsFiles | None = None
    trusted_proxies: tuple[str, ...] = ()
    """Networks (or addresses) whose `X-Forwarded-For` is believed; from all others it is ignored."""
    health_host: str = "127.0.0.1"
    health_port: int = 9093
    topic_prefix: str = ""
    limits: Limits = field(default_factory=Limits)
    timings: Timings = field(default_factory=Timings)
    tracing: GatewayTracing = field(default_factory=Untraced)

    @property
    def requests_topic(self) -> str:
        """Where requests go."""
        return self.topic_prefix + JOIN_REQUESTS

    @property
    def responses_topic(self) -> str:
        """Where answers come from."""
        return self.topic_prefix + JOIN_RESPONSES

    @property
    def published_topic(self) -> str:
        """Where the key set, the trust bundle and the CRL come from."""
        return self.topic_prefix + TRUST_BUNDLE
