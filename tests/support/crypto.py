"""Keys, CSRs and authorities for tests."""

from datetime import UTC, datetime, timedelta
from functools import cache

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA224, SHA256, SHA384, SHA512
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from watchword.handlers.crypto import der
from watchword.handlers.crypto.authority import Authority
from watchword.handlers.crypto.ca_certificates import create_ca
from watchword.handlers.crypto.jws import JwsSigner
from watchword.handlers.crypto.profile import CertificateOrder

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
DAY = timedelta(days=1)
TRUST_DOMAIN = "fleet.example"
NODE_ID = "0190163d-8694-739b-aea5-966c26f8ad91"
STATEMENT = "urn:bc:tpm-ak:" + "0123456789abcdef" * 4

Digest = SHA224 | SHA256 | SHA384 | SHA512
NodeKey = ec.EllipticCurvePrivateKey | Ed25519PrivateKey | rsa.RSAPrivateKey


@cache
def rsa_key(bits: int = 2048) -> rsa.RSAPrivateKey:
    """Return an RSA key, made once for each size: that takes long."""
    return rsa.generate_private_key(65537, bits)


def spki_of(key: NodeKey) -> bytes:
    """Return the SubjectPublicKeyInfo of a key's public half."""
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def csr_of(
    key: NodeKey,
    *,
    digest: Digest | None = None,
    names: x509.SubjectAlternativeName | None = None,
) -> bytes:
    """Return a CSR without names, or with these, signed by the key."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    if names is not None:
        builder = builder.add_extension(names, critical=False)
    if isinstance(key, Ed25519PrivateKey):
        return builder.sign(key, None).public_bytes(Encoding.DER)
    return builder.sign(key, digest or SHA256()).public_bytes(Encoding.DER)


def order(
    key: NodeKey | None = None,
    *,
    tenant: str = "acme",
    node_id: str = NODE_ID,
    node_key_uri: str | None = None,
    not_before: datetime = NOW,
    not_after: datetime = NOW + DAY,
) -> CertificateOrder:
    """Return an order within the profile."""
    spki_der = spki_of(key or ec.generate_private_key(ec.SECP256R1()))
    return CertificateOrder(spki_der, tenant, node_id, node_key_uri, not_before, not_after)


def authority(*, now: datetime = NOW, is_distinct: bool = False) -> Authority:
    """Return a fresh node CA; `is_distinct` gives it a name of its own."""
    key, certificate = create_ca(TRUST_DOMAIN, now=now, is_distinct=is_distinct)
    return Authority(key, [certificate], trust_domain=TRUST_DOMAIN)


def jws_signer(kid: str = "s-1") -> JwsSigner:
    """Return a signer of documents with a fresh key."""
    return JwsSigner(kid, Ed25519PrivateKey.generate())


def rsa_spki(bits: int, exponent: int = 65537, *, low: int = 0x10001) -> bytes:
    """Return an RSA key of a size that would take long to generate; nobody has the private half."""
    key = der.tlv(der.SEQUENCE, der.unsigned((1 << (bits - 1)) + low) + der.unsigned(exponent))
    algorithm = bytes.fromhex("300d06092a864886f70d0101010500")
    return der.tlv(der.SEQUENCE, algorithm + der.tlv(der.BIT_STRING, b"\0" + key))
