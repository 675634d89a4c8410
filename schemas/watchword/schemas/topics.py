"""The topics as data: what `watchword topics apply` creates. None is ever created by itself."""

import re
from dataclasses import dataclass, field

from watchword.schemas.requests import MAX_REQUEST_BYTES

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS

JOIN_REQUESTS = "join.requests"
JOIN_RESPONSES = "join.responses"
NODE_EVENTS = "node.events"
JOIN_REFUSED = "security.join.refused"
JOIN_REFUSED_OCSF = "security.join.refused.ocsf"
TRUST_BUNDLE = "trust.bundle"
JOIN_REQUESTS_DLQ = "join.requests.dlq"

REQUEST_RETENTION_MS = _DAY_MS
"""Inbox rows and decryption keys outlive this."""

EVENT_MAX_BYTES = 64 * 1024
"""The greatest published event with its key and headers; the journal's CHECK holds to it."""

_STAMPED = {"message.timestamp.type": "LogAppendTime"}
"""The broker stamps records: by its own clock. It refuses those of a producer whose clock is an hour
ahead (`message.timestamp.after.max.ms`), and that worker's partitions would stand still for it."""

_REFUSALS = _STAMPED | {
    "retention.ms": str(30 * _DAY_MS),
    "max.message.bytes": str(EVENT_MAX_BYTES * 2),
}


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic. `configs` are the broker's own names; `key` and `value` say what stands in it."""

    name: str
    partitions: int
    key: str
    value: str
    configs: dict[str, str] = field(default_factory=dict[str, str])


TOPICS: tuple[Topic, ...] = (
    Topic(
        JOIN_REQUESTS,
        24,
        "SHA-256 of the CSR (checked, trusted for nothing)",
        "JoinRequest, canonical JSON",
        _STAMPED
        | {
            "retention.ms": str(REQUEST_RETENTION_MS),
            # The broker expands what producers compress, and measures it then: else 512 KiB of
            # gzip are half a gigabyte in a worker, or a codec that its client does not have.
            "compression.type": "uncompressed",
            # The request, its key and headers, and the batch around them.
            "max.message.bytes": str(MAX_REQUEST_BYTES + 4096),
        },
    ),
    Topic(
        JOIN_RESPONSES,
        24,
        "SHA-256 of the CSR",
        "JoinResponse, signed (JWS)",
        _STAMPED
        | {"retention.ms": str(_HOUR_MS), "max.message.bytes": str(MAX_REQUEST_BYTES + 4096)},
    ),
    Topic(
        NODE_EVENTS,
        12,
        "node id; of a join that waits, the id of its join request; of a key, keys/<kind>",
        "node.joined and what follows in a node's life; join.waiting and what became of it; trust.rotated",
        _STAMPED
        | {"retention.ms": str(90 * _DAY_MS), "max.message.bytes": str(EVENT_MAX_BYTES * 2)},
    ),
    Topic(
        JOIN_REFUSED,
        12,
        "SHA-256 of tenant, attestor and reason",
        "security.join.refused, security.join.invalid, security.join.refused.window, security.join.alert",
        _REFUSALS,
    ),
    Topic(
        JOIN_REFUSED_OCSF,
        12,
        "SHA-256 of tenant, attestor and reason",
        "the same as OCSF 1.5, class 3004; alerts as class 2004",
        _REFUSALS,
    ),
    Topic(
        TRUST_BUNDLE,
        1,
        "kind",
        "signed key set, CA bundle, CRL",
        _STAMPED | {"cleanup.policy": "compact", "max.message.bytes": str(1024 * 1024)},
    ),
    Topic(
        JOIN_REQUESTS_DLQ,
        3,
        "as received",
        "bytes as received; reason and coordinates in headers",
        _STAMPED
        | {
            "retention.ms": str(14 * _DAY_MS),
            "retention.bytes": str(256 * 1024 * 1024),
            "max.message.bytes": str(MAX_REQUEST_BYTES * 4),
        },
    ),
)


def tenant_refusals_topic(tenant: str) -> str:
    """Return the name of a tenant's own topic of refusals, which stands beside the shared one."""
    return f"{JOIN_REFUSED}.tenant.{tenant}"


def tenant_topic(tenant: str) -> Topic:
    """Return a tenant's own topic: what its stream has, and nobody else's."""
    return Topic(
        tenant_refusals_topic(tenant),
        3,
        "SHA-256 of tenant, attestor and reason",
        f"what {JOIN_REFUSED} has of this tenant",
        _REFUSALS,
    )


KEY_SET_KEY = b"key-set"
TRUST_BUNDLE_KEY = b"trust-bundle"
CRL_KEY = b"crl"
"""The CRL of the CA that issues."""

CA_NAME = re.compile(r"ca-[0-9a-f]{16}")
"""What a CA is called: the beginning of its subject key identifier."""


def crl_key(ca: str) -> bytes:
    """Return the key under which the CRL of one CA is published, of retired ones as well."""
    return CRL_KEY + b"/" + ca.encode()


def is_crl_key(key: bytes) -> bool:
    """Tell whether this is the key of one CA's CRL."""
    kind, _, name = key.decode("ascii", "replace").partition("/")
    return kind == CRL_KEY.decode() and CA_NAME.fullmatch(name) is not None
