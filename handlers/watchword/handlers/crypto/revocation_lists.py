"""The CRL (RFC 5280, 5): complete, version 2, with a number that grows with the time.

Serials have 128 random bits, so a serial names a certificate whichever of our CAs issued it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import cast

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256, SHA384
from cryptography.hazmat.primitives.serialization import Encoding

MAX_BYTES = 1000 * 1024
"""What fits into a record of the topic: about 25,000 certificates."""

_P256_BITS = 256


@dataclass(frozen=True, slots=True)
class Revoked:
    """One certificate that is revoked and has not expired."""

    serial: bytes
    revoked_at: datetime
    why: str

    def shown(self) -> dict[str, object]:
        """Return it as operators see it."""
        return {"serial": self.serial, "revoked_at": self.revoked_at, "why": self.why}


def sign_crl(
    key: object,
    issuer: x509.Certificate,
    revoked: Iterable[Revoked],
    *,
    now: datetime,
    next_update: datetime,
) -> bytes:
    """Return the DER of the CRL. `key` is the issuer's; a reason is not told: it is in the journal."""
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(issuer.subject)
        .last_update(_whole(now))
        .next_update(_whole(next_update))
        .add_extension(x509.CRLNumber(int(now.timestamp())), critical=False)
        .add_extension(_authority_key(issuer), critical=False)
    )
    for one in revoked:
        entry = (
            x509.RevokedCertificateBuilder()
            .serial_number(int.from_bytes(one.serial, "big"))
            .revocation_date(_whole(one.revoked_at))
            .build()
        )
        builder = builder.add_revoked_certificate(entry)
    signing = cast("ec.EllipticCurvePrivateKey", key)
    digest = SHA256() if signing.public_key().curve.key_size <= _P256_BITS else SHA384()
    return builder.sign(signing, digest).public_bytes(Encoding.DER)


def _authority_key(issuer: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    identifier = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)


def _whole(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(microsecond=0)
