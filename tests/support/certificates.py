"""Operators' CAs and the certificates that they give to machines, for tests."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from tests.support.crypto import NodeKey

_YEAR = timedelta(days=365)


def name_of(common_name: str) -> x509.Name:
    """Return a subject of one common name."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def usage(*, digital_signature: bool = False, key_cert_sign: bool = False) -> x509.KeyUsage:
    """Return a key usage; all else is off."""
    return x509.KeyUsage(
        digital_signature=digital_signature,
        content_commitment=False,
        key_encipherment=not digital_signature and not key_cert_sign,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=key_cert_sign,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def pem_of_key(key: NodeKey) -> bytes:
    """Return a private key as a PEM file has it."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@dataclass(frozen=True)
class Held:
    """A certificate with its key, and the intermediates that lead to the root."""

    certificate: x509.Certificate
    key: NodeKey
    intermediates: tuple[x509.Certificate, ...] = ()

    @property
    def der(self) -> bytes:
        """The certificate."""
        return self.certificate.public_bytes(Encoding.DER)

    @property
    def pem(self) -> bytes:
        """The chain as a file has it: leaf first."""
        return b"".join(
            c.public_bytes(Encoding.PEM) for c in (self.certificate, *self.intermediates)
        )

    @property
    def key_pem(self) -> bytes:
        """The key as a file has it."""
        return pem_of_key(self.key)


@dataclass
class OperatorCa:
    """A CA of an operator's, or one below it."""

    name: str = "fleet CA"
    key: NodeKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    issuer: "OperatorCa | None" = None
    path_length: int | None = None
    certificate: x509.Certificate = field(init=False)

    def __post_init__(self) -> None:
        """Make the certificate."""
        above = self.issuer or self
        self.certificate = signed(
            name_of(self.name),
            self.key,
            name_of(above.name),
            above.key,
            extensions=(
                (x509.BasicConstraints(ca=True, path_length=self.path_length), True),
                (usage(key_cert_sign=True), True),
                *_key_identifiers(self.key, above.key),
            ),
        )

    @property
    def above(self) -> tuple[x509.Certificate, ...]:
        """This CA's certificate and those above it, without the root's."""
        return () if self.issuer is None else (self.certificate, *self.issuer.above)

    def give(
        self,
        common_name: str = "m1.web.fleet.example",
        *,
        key: NodeKey | None = None,
        names: tuple[x509.GeneralName, ...] = (),
        ends: timedelta = _YEAR,
        begins: timedelta = timedelta(days=-1),
        extensions: tuple[tuple[x509.ExtensionType, bool], ...] | None = None,
    ) -> Held:
        """Return a machine's certificate with its key; the times count from now."""
        key = key or ec.generate_private_key(ec.SECP256R1())
        said = extensions
        if said is None:
            said = (
                (usage(digital_signature=True), True),
                (x509.BasicConstraints(ca=False, path_length=None), True),
            )
        if names:
            said = (*said, (x509.SubjectAlternativeName(names), False))
        said = (*said, *_key_identifiers(key, self.key))
        certificate = signed(
            name_of(common_name),
            key,
            name_of(self.name),
            self.key,
            begins=begins,
            ends=ends,
            extensions=said,
        )
        return Held(certificate, key, self.above)


def signed(
    subject: x509.Name,
    key: NodeKey,
    issuer: x509.Name,
    issuer_key: NodeKey,
    *,
    begins: timedelta = timedelta(days=-1),
    ends: timedelta = _YEAR,
    extensions: tuple[tuple[x509.ExtensionType, bool], ...] = (),
) -> x509.Certificate:
    """Return any certificate at all."""
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + begins)
        .not_valid_after(now + ends)
    )
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical=critical)
    digest = None if isinstance(issuer_key, Ed25519PrivateKey) else SHA256()
    return builder.sign(issuer_key, digest)


def _key_identifiers(
    key: NodeKey, issuer_key: NodeKey
) -> tuple[tuple[x509.ExtensionType, bool], ...]:
    return (
        (x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), False),
    )
