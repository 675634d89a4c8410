"""What was asked: the truth that the judge compares everything with. Whoever asks writes it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

JOINED = "joined"
REFUSED = "refused"
INVALID = "INVALID_INPUT"
UNSUPPORTED = "UNSUPPORTED"
UNAVAILABLE = "UNAVAILABLE"
COMMANDS = "commands"
"""What a node is to do; perhaps nothing."""

EVICTED, BANNED = "evicted", "banned"
"""How a node may end: a thief, or an operator."""

DEFERRED = "deferred"
"""Not final: a challenge to answer, or an operator to wait for."""

FINAL = frozenset((JOINED, REFUSED, INVALID, UNSUPPORTED, COMMANDS))
"""The outcomes after which nothing more comes."""


@dataclass(slots=True)
class Asked:
    """One request, by its exact bytes. Times are of this process's monotonic clock, in seconds."""

    digest: bytes
    kind: str
    outcomes: frozenset[str]
    """What may be answered."""
    reasons: frozenset[str] = frozenset()
    """`<attestor>:<reason>` that may stand in the tables where it is not joined."""
    csr_sha256: bytes | None = None
    """None if a service cannot read that far."""
    request_id: str | None = None
    reply_private: bytes | None = field(default=None, repr=False)
    token: str | None = None
    """The public id of the token that is shown."""
    node: str | None = None
    """The node that is to be re-keyed."""
    deferral: str | None = None
    """What kind of deferral may be answered: `approval` or `challenge`."""
    dead_letter: bytes | None = field(default=None, repr=False)
    """The bytes that must come out of the dead-letter topic unchanged."""
    deliveries: int = 0
    """How often a write of it was acknowledged."""
    acknowledged_at: float | None = None
    """When the first write was acknowledged."""
    answered_at: float | None = None
    """When the first answer was seen."""
    felt_s: float | None = None
    """From the machine's first word until it had its answer, where that was measured at the machine."""


@dataclass(slots=True)
class Poison:
    """A record that Kafka's client cannot parse: it has no digest, so it goes by its place."""

    partition: int
    offset: int
    key: bytes
    value: bytes


@dataclass(frozen=True, slots=True)
class Flood:
    """A flood at gateways: what whoever poured it was answered, and what gateways say of themselves."""

    answers: Mapping[str, Mapping[str, int]]
    """By the kind of junk: how often each problem, status or `cut` was the answer."""
    expected: Mapping[str, frozenset[str]]
    """What may be answered to each kind."""
    counted: Mapping[str, int]
    """How many more of each problem the gateways have counted."""
    without_a_time: int
    """Answers that tell to come again and not when."""
    grown_bytes: Mapping[str, int]
    """By how much the greatest memory of each gateway was above what it had before."""
    most_bytes: int
    """What it may be."""


@dataclass(slots=True)
class Commands:
    """What operators and machines know of commands to nodes."""

    sent: dict[str, str] = field(default_factory=dict[str, str])
    """Those that were sent, with their nodes."""
    heard: dict[str, str] = field(default_factory=dict[str, str])
    """Those that nodes were handed, with those nodes."""
    reported: set[str] = field(default_factory=set[str])
    """Those that were done, as the service was told."""


class Ledger:
    """Every request that was made in a round."""

    def __init__(self) -> None:
        """Have asked nothing yet."""
        self.asked: dict[bytes, Asked] = {}
        self.poisons: list[Poison] = []
        self.injected_events: set[str] = set()
        """Ids of journal rows that a fault put there, and that were parked."""
        self.decided: dict[bytes, str] = {}
        """What an operator has decided, `approved` or `rejected`, by the SHA-256 of the CSR."""
        self.floods: list[Flood] = []
        self.booted: set[bytes] = set()
        """CSRs of machines that booted all at once, by their SHA-256: each has to be a node in the end."""
        self._waiting: dict[bytes, float] = {}
        """When those that have no answer yet were acknowledged: looked at while millions are answered."""

    def add(self, asked: Asked) -> None:
        """Write down a request before it is sent."""
        self.asked[asked.digest] = asked

    def acknowledge(self, digest: bytes, now: float) -> None:
        """Write down that Kafka, or a gateway, has taken the request."""
        asked = self.asked[digest]
        asked.deliveries += 1
        if asked.acknowledged_at is None:
            asked.acknowledged_at = now
            if asked.answered_at is None:
                self._waiting[digest] = now

    def answer(self, digest: bytes, now: float) -> None:
        """Write down when the first answer was seen."""
        asked = self.asked.get(digest)
        if asked is not None and asked.answered_at is None:
            asked.answered_at = now
            self._waiting.pop(digest, None)

    def waiting(self, now: float) -> tuple[int, float]:
        """Return how many acknowledged requests have no answer, and for how long the oldest waits."""
        return len(self._waiting), now - min(self._waiting.values(), default=now)
