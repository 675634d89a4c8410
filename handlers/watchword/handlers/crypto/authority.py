"""The node CA: checks each order against the profile and signs what it allows."""

import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from typing import Protocol

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256, SHA384

from watchword.handlers.crypto import der
from watchword.handlers.crypto.ca_certificates import chain_without_root, check_chain
from watchword.handlers.crypto.camanifest import ca_kid
from watchword.handlers.crypto.keypolicy import public_key_bits
from watchword.handlers.crypto.profile import (
    BACKDATE,
    SERIAL_BYTES,
    TRUST_DOMAIN,
    CertificateOrder,
    IssuedCertificate,
    check_order,
)
from watchword.handlers.crypto.revocation_lists import MAX_BYTES, Revoked, sign_crl
from watchword.handlers.crypto.tbs import TbsTemplate, key_identifier
from watchword.handlers.errors import ConfigRefused, SignerUnavailable

DEFAULT_MAX_LIFETIME = timedelta(days=32)
"""What a single order may ask for, unless the authority was told otherwise."""

_SHA256 = ec.ECDSA(SHA256())
_SHA384 = ec.ECDSA(SHA384())
_SIGNATURES = {
    "secp256r1": (_SHA256, bytes.fromhex("300a06082a8648ce3d040302")),
    "secp384r1": (_SHA384, bytes.fromhex("300a06082a8648ce3d040303")),
}
"""By the CA key's curve: how it signs, and that AlgorithmIdentifier (RFC 5758, 3.2)."""


class CaKey(Protocol):
    """The CA's private key: a file's, or a handle to one in a hardware module."""

    def public_key(self) -> ec.EllipticCurvePublicKey:
        """Return the public half."""
        ...

    def sign(self, data: bytes, signature_algorithm: ec.EllipticCurveSignatureAlgorithm) -> bytes:
        """Return the DER of an ECDSA signature over `data`, not yet hashed."""
        ...


class Authority:
    """A node CA with its key and its certificate chain."""

    def __init__(
        self,
        key: CaKey,
        certificates: Sequence[x509.Certificate],
        *,
        trust_domain: str,
        max_lifetime: timedelta = DEFAULT_MAX_LIFETIME,
    ) -> None:
        """Take the key (ECDSA P-256 or P-384) and its certificates, issuing CA first.

        Raises:
            ConfigRefused: the certificates are no chain of CAs, or the first is not the key's.
        """
        public = key.public_key()
        check_chain(certificates, public)
        if not TRUST_DOMAIN.fullmatch(trust_domain):
            raise ConfigRefused(["the trust domain is not one of SPIFFE's"])
        if public.curve.name not in _SIGNATURES:
            raise ConfigRefused(["the CA key is neither P-256 nor P-384"])
        issuer = certificates[0]
        self.trust_domain = trust_domain
        self.max_lifetime = max_lifetime
        self.not_before = issuer.not_valid_before_utc
        self.not_after = issuer.not_valid_after_utc
        self.chain = chain_without_root(certificates)
        """DER, the issuing CA first, without the root unless that is the issuing CA itself."""
        self._key = key
        self.is_remote: bool = getattr(key, "is_remote", False)
        """Whether each signature is a call to a hardware module."""
        self._issuer = issuer
        self._signing, self._algorithm = _SIGNATURES[public.curve.name]
        identifier = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
        self._template = TbsTemplate(
            issuer_name=issuer.subject.public_bytes(),
            issuer_key_identifier=identifier.value.digest,
            signature_algorithm=self._algorithm,
        )

    @property
    def kid(self) -> str:
        """The CA's name, as in `ca.json`."""
        return ca_kid(self._issuer)

    def revocation_list(
        self, revoked: Sequence[Revoked], *, now: datetime, next_update: datetime
    ) -> bytes:
        """Return the signed CRL, DER.

        Raises:
            ConfigRefused: more certificates are revoked than a CRL may hold, or the CA's own may not sign one.
        """
        usage = self._issuer.extensions.get_extension_for_class(x509.KeyUsage).value
        if not usage.crl_sign:
            raise ConfigRefused(["the CA certificate may not sign CRLs (keyUsage cRLSign)"])
        der_bytes = sign_crl(self._key, self._issuer, revoked, now=now, next_update=next_update)
        if len(der_bytes) > MAX_BYTES:
            raise ConfigRefused(["the CRL is too large: shorten certificate_lifetime_s"])
        return der_bytes

    def issue(
        self, orders: Sequence[CertificateOrder], *, now: datetime | None = None
    ) -> list[IssuedCertificate]:
        """Return one certificate for each order, in order; all of them or none.

        `now` is the signer's own time where it has one: an order must be less than `BACKDATE` away
        from it, so that whoever has taken over a worker cannot store up certificates for later.

        Raises:
            OrderRefused: an order breaks the profile; says which.
            SignerUnavailable: the CA's own certificate is not valid at the time of an order, or the
                order's time is not the signer's.
        """
        names = [
            check_order(
                order, index, max_lifetime=self.max_lifetime, trust_domain=self.trust_domain
            )
            for index, order in enumerate(orders)
        ]
        for order in orders:
            if now is not None and abs(order.not_before - now) >= BACKDATE:
                message = "the clocks of worker and signer disagree"
                raise SignerUnavailable(message)
            if not self.not_before <= order.not_before < self.not_after:
                message = "the CA certificate is not valid now"
                raise SignerUnavailable(message)
        return [self._issue(order, name) for order, name in zip(orders, names, strict=True)]

    def _issue(self, order: CertificateOrder, name: bytes) -> IssuedCertificate:
        serial = os.urandom(SERIAL_BYTES)
        not_before = _whole(max(order.not_before - BACKDATE, self.not_before))
        not_after = _whole(min(order.not_after, self.not_after))
        statement = order.node_key_uri
        tbs = self._template.fill(
            serial=serial,
            not_before=not_before,
            not_after=not_after,
            spki_der=order.spki_der,
            key_identifier=key_identifier(public_key_bits(order.spki_der)),
            uris=(name,) if statement is None else (name, statement.encode()),
        )
        signature = self._key.sign(tbs, self._signing)
        certificate = der.tlv(
            der.SEQUENCE,
            tbs + self._algorithm + der.tlv(der.BIT_STRING, b"\0" + signature),
        )
        return IssuedCertificate(serial, certificate, sha256(tbs).digest(), not_before, not_after)


@lru_cache(maxsize=64)  # all orders of a batch carry the same
def _whole(at: datetime) -> datetime:
    """Return the time in UTC as a certificate can hold it."""
    return at.astimezone(UTC).replace(microsecond=0)
