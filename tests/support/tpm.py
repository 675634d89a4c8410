"""A TPM's half in software, and its maker: keys, public areas, quotes, certificates, activation.

Only for tests. Public areas are marshalled here by hand, so that no code of ours reads what it wrote itself.
"""

from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from tests.support.vectors import vector

TpmKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
EK_PURPOSE = x509.ObjectIdentifier("2.23.133.8.1")
UNKNOWN = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.3.6.1.4.1.55555.1"), b"\x05\x00")


def recorded_area(folder: str, key: str) -> bytes:
    """Return a recorded public area as TPM2B_PUBLIC; some recordings are without its size."""
    data = (vector(folder) / f"{key}.pub").read_bytes()
    whole = data[:2] == (len(data) - 2).to_bytes(2, "big")
    return data if whole else len(data).to_bytes(2, "big") + data


def new_key(kind: str) -> TpmKey:
    """Return a key: `rsa2048`, `rsa3072`, `p256` or `p384`."""
    if kind.startswith("rsa"):
        return rsa.generate_private_key(65537, int(kind[3:]))
    return ec.generate_private_key({"p256": ec.SECP256R1(), "p384": ec.SECP384R1()}[kind])


class Maker:
    """A vendor's root CA, and one CA below it that certifies endorsement keys."""

    def __init__(self) -> None:
        """Make both."""
        self._root_key = ec.generate_private_key(ec.SECP256R1())
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.root = self._authority("root", self._root_key, None).public_bytes(Encoding.DER)
        self.issuer = self._authority("issuer", self._key, 0).public_bytes(Encoding.DER)

    def certify(
        self,
        key: TpmKey,
        *,
        self_signed: bool = False,
        days: int = 365,
        purpose: x509.ObjectIdentifier | None = EK_PURPOSE,
        critical: x509.ExtensionType | None = None,
        authority: bool = False,
    ) -> bytes:
        """Return the endorsement certificate of a key: an empty subject, and a critical directoryName."""
        named = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "id:54455354")])
        builder = _builder(x509.Name([]), _name("issuer"), key, days)
        builder = builder.add_extension(
            x509.SubjectAlternativeName([x509.DirectoryName(named)]), critical=True
        )
        builder = builder.add_extension(
            x509.BasicConstraints(ca=authority, path_length=None), critical=True
        )
        builder = builder.add_extension(
            _usage(
                key_encipherment=isinstance(key, rsa.RSAPrivateKey),
                key_agreement=isinstance(key, ec.EllipticCurvePrivateKey),
            ),
            critical=True,
        )
        if purpose is not None:
            builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        if critical is not None:
            builder = builder.add_extension(critical, critical=True)
        signer = key if self_signed else self._key
        return builder.sign(signer, SHA256()).public_bytes(Encoding.DER)

    def _authority(self, name: str, key: TpmKey, path_length: int | None) -> x509.Certificate:
        builder = _builder(_name(name), _name("root"), key, 3650)
        builder = builder.add_extension(
            x509.BasicConstraints(ca=True, path_length=path_length), critical=True
        )
        builder = builder.add_extension(_usage(key_cert_sign=True), critical=True)
        return builder.sign(self._root_key, SHA256())


def _builder(
    subject: x509.Name, issuer: x509.Name, key: TpmKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=30))
        .not_valid_after(now + timedelta(days=days))
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _usage(**on: bool) -> x509.KeyUsage:
    off = dict.fromkeys(
        (
            "digital_signature",
            "content_commitment",
            "key_encipherment",
            "data_encipherment",
            "key_agreement",
            "key_cert_sign",
            "crl_sign",
            "encipher_only",
            "decipher_only",
        ),
        False,
    )
    return x509.KeyUsage(**{**off, **on})
