"""The certificates of a node CA: making one, and checking that some are a chain."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID

from watchword.handlers.crypto.keypolicy import public_key_bits
from watchword.handlers.crypto.profile import BACKDATE
from watchword.handlers.crypto.tbs import key_identifier
from watchword.handlers.errors import ConfigRefused

CA_LIFETIME = timedelta(days=3653)
MAX_CHAIN = 8

_SIGN_CERTIFICATES_AND_CRLS = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


def create_ca(
    trust_domain: str,
    *,
    now: datetime,
    lifetime: timedelta = CA_LIFETIME,
    key: ec.EllipticCurvePrivateKey | None = None,
    is_distinct: bool = False,
) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    """Return a key (a new P-256 one, unless one is given) and a self-signed CA certificate for it.

    It may issue leaves only (pathlen 0) and carries the trust domain as its SPIFFE ID (X509-SVID,
    3.1). Times are aware; `now` is dated back like a node's certificate. `is_distinct` puts the beginning
    of the key's identifier into the name: for one beside another, whose CRLs must not be mistaken.
    """
    key = key or ec.generate_private_key(ec.SECP256R1())
    public = key.public_key()
    spki = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    identifier = x509.SubjectKeyIdentifier(key_identifier(public_key_bits(spki)))
    # A common name has at most 64 characters (RFC 5280, A.1).
    common = f"Watchword {trust_domain}"[:64]
    if is_distinct:
        common = f"{common[:55]} {identifier.digest.hex()[:8]}"
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATE)
        .not_valid_after(now + lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_SIGN_CERTIFICATES_AND_CRLS, critical=True)
        .add_extension(
            x509.SubjectAlternativeName(
                [x509.UniformResourceIdentifier(f"spiffe://{trust_domain}")]
            ),
            critical=False,
        )
        .add_extension(identifier, critical=False)
        .sign(key, SHA256())
    )
    return key, certificate


def check_chain(
    certificates: Sequence[x509.Certificate], public_key: ec.EllipticCurvePublicKey
) -> None:
    """Return only if these are CAs, each issued by the next, and the first certifies the key.

    Raises:
        ConfigRefused: all that is wrong. Validity in time is judged with each order.
    """
    # 1. There is at least one certificate, and not too many.
    # 2. The first is the key's.
    # 3. Each is a CA (RFC 5280, 4.2.1.9) that may sign certificates (4.2.1.3).
    # 4. Each is signed by the next, with names that match; a single one need not be self-signed.
    # 5. The issuing one has a key identifier, which every node certificate repeats (4.2.1.2).

    # Step 1
    if not 1 <= len(certificates) <= MAX_CHAIN:
        raise ConfigRefused([f"a CA has 1 to {MAX_CHAIN} certificates, not {len(certificates)}"])
    problems: list[str] = []

    # Step 2
    if certificates[0].public_key() != public_key:
        problems.append("the first CA certificate does not belong to the CA key")

    for place, certificate in enumerate(certificates):
        # Step 3
        if not _is_ca(certificate):
            problems.append(f"certificate {place} is not a CA that may sign certificates")

        # Step 4
        if place + 1 < len(certificates) and not _issued(certificates[place + 1], certificate):
            problems.append(f"certificate {place} is not issued by certificate {place + 1}")

    # Step 5
    if not _has_key_identifier(certificates[0]):
        problems.append("the first CA certificate has no subject key identifier")

    if problems:
        raise ConfigRefused(problems)


def chain_without_root(certificates: Sequence[x509.Certificate]) -> tuple[bytes, ...]:
    """Return DER in the same order, without a self-signed last one, unless it is the only one."""
    last = certificates[-1]
    is_root_above = len(certificates) > 1 and last.subject == last.issuer
    kept = certificates[:-1] if is_root_above else certificates
    return tuple(certificate.public_bytes(Encoding.DER) for certificate in kept)


def _is_ca(certificate: x509.Certificate) -> bool:
    try:
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
        usage = certificate.extensions.get_extension_for_class(x509.KeyUsage)
    except (x509.ExtensionNotFound, x509.DuplicateExtension, ValueError):
        return False
    return constraints.value.ca and usage.value.key_cert_sign


def _has_key_identifier(certificate: x509.Certificate) -> bool:
    try:
        certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    except (x509.ExtensionNotFound, x509.DuplicateExtension, ValueError):
        return False
    return True


def _issued(issuer: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True
