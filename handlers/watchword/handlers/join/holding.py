"""Who holds a node's certificate, and whether it still speaks for the node: the same steps for renewals and for requests for commands.

The order of checks; the first that fails is the reason:
  1. the certificate was issued here;
  2. its key signed this very request: from here on the tenant is authenticated;
  3. the node has the role that is named;
  4. the node is adopting or active;
  5. the certificate is neither revoked nor expired.
Whether it is the node's current one is for the caller to judge.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256

from watchword.handlers.attestor import Subject
from watchword.handlers.crypto.keypolicy import load_public_key
from watchword.handlers.crypto.renewals import holds
from watchword.handlers.errors import InvalidInput, Refused
from watchword.handlers.join.candidate import Candidate
from watchword.handlers.join.loading import Loader
from watchword.handlers.rows import Renewable
from watchword.schemas.ids import AttestorId, Role, TenantId

LIVE = frozenset(("adopting", "active"))


@dataclass(frozen=True, slots=True)
class Shown:
    """What a request shows of a certificate: its name, its key, and that key's signature over a text."""

    tbs_sha256: bytes
    spki_der: bytes
    signature: bytes
    text: bytes


async def read_certificates(loader: Loader, tbs: Sequence[bytes]) -> list[Renewable | None]:
    """Return certificates with their nodes, in one query."""
    return await loader.get_all(loader.renewables, tbs)


def checked(
    attestor: AttestorId,
    candidate: Candidate,
    role: Role,
    shown: Shown,
    known: Renewable | None,
    now: datetime,
) -> Renewable | Refused:
    """Return the certificate, if whoever asks holds it and it counts; what was read is noted."""
    # Step 1
    candidate.reads.add(("certificate", shown.tbs_sha256))
    if known is None:
        return Refused(attestor, "unknown-certificate")
    certificate, node = known.certificate, known.node
    candidate.reads.add(("node", node.id))

    # Step 2
    if sha256(shown.spki_der).digest() != certificate.spki_sha256 or not _signed(shown):
        return Refused(attestor, "signature")
    tenant = TenantId(node.tenant)

    # Step 3
    if role != node.role:
        return Refused(attestor, "wrong-role", tenant_id=tenant)

    # Step 4
    if node.state not in LIVE:
        return Refused(attestor, "node-state", tenant_id=tenant)

    # Step 5
    if certificate.revoked:
        return Refused(attestor, "revoked", tenant_id=tenant)
    if certificate.not_after <= now:
        return Refused(attestor, "expired", tenant_id=tenant)
    return known


def _signed(shown: Shown) -> bool:
    try:
        key = load_public_key(shown.spki_der)
    except InvalidInput:
        return False
    return holds(key, shown.signature, shown.text)


def ban_subjects(known: Renewable, spki_sha256: bytes) -> tuple[bytes, ...]:
    """Return what a ban may name that the node's own state does not tell yet; the key is what the request brings."""
    node, certificate = known.node, known.certificate
    found = [
        Subject("certificate", certificate.tbs_sha256.hex()),
        Subject("spki", certificate.spki_sha256.hex()),
        Subject("spki", spki_sha256.hex()),
    ]
    if node.site is not None:
        found.append(Subject("site", f"{node.tenant}/{node.site}"))
    if node.hardware_key is not None:
        found.append(Subject("hardware-key", node.hardware_key))
    if certificate.node_key_uri is not None:
        found.append(Subject("node-key", certificate.node_key_uri))
    return tuple(subject.digest for subject in found)
