"""The one profile of node certificates: what may be ordered, and what is in the certificate.

| field | value |
|---|---|
| serial | 128 random bits (RFC 5280, 4.1.2.2) |
| validity | from 5 minutes before the order's `not_before`, never beyond the issuer's own |
| subject | empty, so the names below are critical (RFC 5280, 4.1.2.6) |
| subjectAltName, critical | `spiffe://<trust domain>/tenant/<t>/node/<id>`; the key statement as a second URI |
| basicConstraints, critical | CA false |
| keyUsage, critical | digitalSignature |
| extendedKeyUsage | clientAuth |
| authorityKeyIdentifier, subjectKeyIdentifier | the issuer's own; SHA-256 of the key, 160 bits (RFC 7093, 2, method 1) |

Nothing of a CSR but its key comes in.
"""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta

from watchword.handlers.crypto.keypolicy import load_public_key
from watchword.handlers.errors import BadArgument, InvalidInput

BACKDATE = timedelta(minutes=5)
"""By how much a certificate begins before its order: machines' clocks are behind."""

SERIAL_BYTES = 16

TRUST_DOMAIN = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,253}[a-z0-9])?")
"""A SPIFFE trust domain, at most 255 characters (SPIFFE-ID, 2.1)."""

TENANT = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
"""A DNS label (RFC 1123)."""

NODE_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""A UUID's one text form (RFC 9562, 4, lower case)."""

KEY_STATEMENT = re.compile(r"urn:bc:tpm-ak:[0-9a-f]{64}")
"""The only key statement that can be proved again at renewal."""


class OrderRefused(BadArgument):
    """The certificate order breaks the profile. `index` is its place in the call."""

    def __init__(self, index: int, problem: str) -> None:
        """Name the order and what is wrong with it."""
        super().__init__(f"order {index}: {problem}")
        self.index = index
        self.problem = problem


@dataclass(frozen=True, slots=True)
class CertificateOrder:
    """What a worker asks the authority to certify. Times are aware; seconds count."""

    spki_der: bytes
    """The node's key in its one spelling, as in `Csr.spki_der`."""
    tenant: str
    node_id: str
    """A UUID in its lower-case text form."""
    node_key_uri: str | None
    """A proven key statement, `urn:bc:tpm-ak:` and 64 hexadecimal digits, or none."""
    not_before: datetime
    """The moment of judging. The authority, and nobody else, dates back from here by `BACKDATE`."""
    not_after: datetime
    """The wanted end; cut to the end of the issuer's life."""


@dataclass(frozen=True, slots=True)
class IssuedCertificate:
    """A certificate that was issued, with what the store keeps of it."""

    serial: bytes
    """16 bytes, big endian."""
    der: bytes
    tbs_sha256: bytes
    """SHA-256 of the TBSCertificate, which names the certificate whatever its signature bytes are."""
    not_before: datetime
    """As it stands in the certificate: whole seconds, UTC."""
    not_after: datetime


def check_order(
    order: CertificateOrder, index: int, *, max_lifetime: timedelta, trust_domain: str
) -> bytes:
    """Return the SAN's first URI if the order is within the profile.

    Raises:
        OrderRefused: a bad tenant, node id, statement, lifetime or key.
    """
    # 1. Every name is in its one form, so that no name can be mistaken for another.
    # 2. The lifetime is positive and within the authority's bound.
    # 3. The key is good enough (`keypolicy`), whoever asks.

    # Step 1
    if not TENANT.fullmatch(order.tenant):
        raise OrderRefused(index, "the tenant is no slug")
    if not NODE_ID.fullmatch(order.node_id):
        raise OrderRefused(index, "the node id is no UUID")
    if order.node_key_uri is not None and not KEY_STATEMENT.fullmatch(order.node_key_uri):
        raise OrderRefused(index, "the key statement is not of a known form")

    # Step 2
    if order.not_before.tzinfo is None or order.not_after.tzinfo is None:
        raise OrderRefused(index, "a time has no zone")
    if not timedelta(0) < order.not_after - order.not_before <= max_lifetime:
        raise OrderRefused(index, "the lifetime is out of bounds")

    # Step 3
    try:
        load_public_key(order.spki_der)
    except InvalidInput as error:
        raise OrderRefused(index, f"the key is refused ({error.reason})") from None

    return node_uri(trust_domain, order.tenant, order.node_id)


def node_uri(trust_domain: str, tenant: str, node_id: str) -> bytes:
    """Return the node's SPIFFE ID as bytes. The parts are checked elsewhere."""
    return f"spiffe://{trust_domain}/tenant/{tenant}/node/{node_id}".encode()
