"""CMS and certificates as a cloud would make them, and as somebody would who is none."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from asn1crypto import algos, cms, core
from asn1crypto import x509 as asn1_x509
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from watchword.handlers.attestors.cloud_iid.anchors import key_type

CloudKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Certified:
    """A key with its certificate."""

    key: CloudKey
    certificate: x509.Certificate

    @property
    def der(self) -> bytes:
        """The certificate's DER."""
        return self.certificate.public_bytes(Encoding.DER)

    @property
    def pem(self) -> bytes:
        """The certificate's PEM."""
        return self.certificate.public_bytes(Encoding.PEM)


def certify(
    name: str,
    *,
    issuer: Certified | None = None,
    key: CloudKey | None = None,
    ca: bool = False,
    dns: Sequence[str] = (),
    not_before: datetime = START,
    not_after: datetime = START + timedelta(days=365),
    serial: int | None = None,
) -> Certified:
    """Return a certificate; self-signed without an issuer."""
    made = key or ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .public_key(made.public_key())
        .serial_number(serial or x509.random_serial_number())
        .not_valid_before(not_before)
        .not_valid_after(not_after)
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    )
    if dns:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([x509.DNSName(each) for each in dns]), critical=False
        )
    signer = issuer.key if issuer else made
    return Certified(made, builder.sign(signer, hashes.SHA256()))


@dataclass
class Cms:
    """A SignedData to be made; each field is one way to make it wrong."""

    content: bytes
    signer: Certified
    attributes: bool = True
    certificates: Sequence[bytes] = ()
    signers: int = 1
    detached: bool = False
    without: str = ""
    twice: str = ""
    about: bytes | None = None
    """Another content for the digest in the attributes."""
    changes: dict[str, Any] = field(default_factory=dict[str, Any])

    def make(self) -> bytes:
        """Return the DER."""
        info = self._signer_info()
        wrapped: dict[str, Any] = {"content_type": "data"}
        if not self.detached:
            wrapped["content"] = self.content
        data: dict[str, Any] = {
            "version": "v1",
            "digest_algorithms": [{"algorithm": "sha256"}],
            "encap_content_info": wrapped,
            "signer_infos": [info] * self.signers,
        }
        if self.certificates:
            data["certificates"] = [
                cms.CertificateChoices(name="certificate", value=asn1_x509.Certificate.load(der))
                for der in self.certificates
            ]
        signed = cms.SignedData(data)
        made: bytes = cms.ContentInfo({"content_type": "signed_data", "content": signed}).dump()
        return made

    def _signer_info(self) -> Any:  # noqa: ANN401 - asn1crypto has no annotations
        tbs = asn1_x509.Certificate.load(self.signer.der)["tbs_certificate"]
        over = self.content
        info: dict[str, Any] = {
            "version": "v1",
            "sid": cms.SignerIdentifier(
                name="issuer_and_serial_number",
                value=cms.IssuerAndSerialNumber(
                    {"issuer": tbs["issuer"], "serial_number": tbs["serial_number"]}
                ),
            ),
            "digest_algorithm": {"algorithm": "sha256"},
            "signature_algorithm": {"algorithm": self._algorithm()},
            **self.changes,
        }
        if self.attributes:
            digest = hashlib.sha256(self.content if self.about is None else self.about).digest()
            attributes = [
                cms.CMSAttribute({"type": "content_type", "values": ["data"]}),
                cms.CMSAttribute({"type": "message_digest", "values": [core.OctetString(digest)]}),
            ]
            attributes = [
                each
                for each in attributes
                for _ in range({self.without: 0, self.twice: 2}.get(each["type"].native, 1))
            ]
            signed = cms.CMSAttributes(attributes)
            info["signed_attrs"] = signed
            over = signed.untag().dump()
        info["signature"] = self._sign(over)
        return cms.SignerInfo(info)

    def _algorithm(self) -> str:
        return "sha256_rsa" if isinstance(self.signer.key, rsa.RSAPrivateKey) else "sha256_ecdsa"

    def _sign(self, over: bytes) -> bytes:
        if isinstance(self.signer.key, rsa.RSAPrivateKey):
            return self.signer.key.sign(over, padding.PKCS1v15(), hashes.SHA256())
        return self.signer.key.sign(over, ec.ECDSA(hashes.SHA256()))


def weak_digest() -> Any:  # noqa: ANN401 - asn1crypto has no annotations
    """Return the algorithm identifier of MD5."""
    return algos.DigestAlgorithm({"algorithm": "md5"})


def entry_of(
    file: str,
    certificate: x509.Certificate,
    *,
    provider: str,
    purpose: str,
    region: str = "",
    partition: str = "",
) -> dict[str, str]:
    """Return the manifest's entry of a certificate, as it is."""
    return {
        "file": file,
        "provider": provider,
        "partition": partition or provider,
        "region": region,
        "purpose": purpose,
        "keyType": key_type(certificate),
        "notBefore": certificate.not_valid_before_utc.isoformat(),
        "notAfter": certificate.not_valid_after_utc.isoformat(),
        "source": "a test",
    }


def jwks_entry(file: str) -> dict[str, str]:
    """Return the manifest's entry of a key set."""
    return {
        "file": file,
        "provider": "gcp",
        "partition": "gcp",
        "purpose": "jwks",
        "keyType": "rsa-2048",
        "source": "a test",
    }


@dataclass
class Folder:
    """An anchor folder to be filled."""

    path: Path
    entries: list[dict[str, str]] = field(default_factory=list[dict[str, str]])

    def add(self, certificate: x509.Certificate, **entry: str) -> dict[str, str]:
        """Write a certificate, list it, and return its entry."""
        file = f"{len(self.entries)}.pem"
        (self.path / file).write_bytes(certificate.public_bytes(Encoding.PEM))
        self.entries.append(entry_of(file, certificate, **entry))
        return self.entries[-1]

    def add_keys(self, data: bytes) -> None:
        """Write a key set and list it."""
        file = f"{len(self.entries)}.json"
        (self.path / file).write_bytes(data)
        self.entries.append(jwks_entry(file))

    def write(self) -> Path:
        """Write the manifest and return the folder."""
        (self.path / "anchors.json").write_text(json.dumps({"anchors": self.entries}))
        return self.path
