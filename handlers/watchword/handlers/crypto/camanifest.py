"""The node CAs of a deployment: `ca.json`, public, in the signer's folder and, as a copy, in the workers'.

Without that file there is one CA, whose certificates are in `ca.cert.pem`.
"""

from base64 import b64decode
from pathlib import Path
from typing import Annotated

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding
from pydantic import Field

from watchword.handlers.crypto.chains import UNREADABLE
from watchword.handlers.crypto.keymanifest import (
    MOST_KEYS,
    State,
    read_manifest,
    time_of,
    write_manifest,
)
from watchword.handlers.crypto.private_files import read_public
from watchword.handlers.errors import ConfigRefused
from watchword.schemas.canonical import b64
from watchword.schemas.requests import Wire
from watchword.schemas.responses import Instant

CA_MANIFEST = "ca.json"
CA_CERTIFICATES = "ca.cert.pem"


class CaEntry(Wire):
    """One CA: the key file `ca/<kid>.pem` (the first one's is `ca.key.pem`), or a key in a hardware module."""

    kid: Annotated[str, Field(pattern=r"^ca-[0-9a-f]{16}$")]
    state: State
    certificates: Annotated[tuple[str, ...], Field(min_length=1, max_length=8, strict=False)]
    """DER in base64, the issuing one first."""
    in_hsm: Annotated[str, Field(min_length=1, max_length=100)] | None = None
    """The label of its key in the hardware module; None for a key in a file."""
    prepared_at: Instant | None = None
    activated_at: Instant | None = None
    retired_until: Instant | None = None
    """When the last certificate that it has issued ends, at the latest."""

    def loaded(self) -> list[x509.Certificate]:
        """Return its certificates, the issuing one first."""
        return [x509.load_der_x509_certificate(b64decode(text)) for text in self.certificates]


class CaManifest(Wire):
    """All of them."""

    version: Annotated[int, Field(ge=0, lt=2**52)] = 0
    """Counts the changes; the version of what agents are told counts them too."""
    authorities: Annotated[
        tuple[CaEntry, ...], Field(min_length=1, max_length=MOST_KEYS, strict=False)
    ]

    @property
    def active(self) -> CaEntry:
        """The one that issues."""
        return next(entry for entry in self.authorities if entry.state == "active")

    def write(self, directory: Path) -> None:
        """Replace the manifest of a folder."""
        write_manifest(self, directory / CA_MANIFEST)


def read_ca_manifest(directory: Path) -> CaManifest:
    """Return the CAs of a folder, one of which is active.

    Raises:
        ConfigRefused: neither `ca.json` nor `ca.cert.pem` can be used.
    """
    path = directory / CA_MANIFEST
    if not path.exists():
        return CaManifest(authorities=(_first(directory / CA_CERTIFICATES),))
    manifest = read_manifest(CaManifest, path)
    if [entry.state for entry in manifest.authorities].count("active") != 1:
        raise ConfigRefused([f"{path}: there is not one active CA"])
    for entry in manifest.authorities:
        try:
            certificates = entry.loaded()
            for instant in (entry.prepared_at, entry.activated_at, entry.retired_until):
                time_of(instant)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            raise ConfigRefused([f"{path}: {entry.kid} cannot be read"]) from None
        if ca_kid(certificates[0]) != entry.kid:
            raise ConfigRefused([f"{path}: {entry.kid} has the certificate of another CA"])
    return manifest


def ca_kid(issuing: x509.Certificate) -> str:
    """Return the name of a CA: `ca-` and the beginning of its subject key identifier.

    Raises:
        ConfigRefused: it has none.
    """
    return f"ca-{key_identifier_of(issuing).hex()[:16]}"


def key_identifier_of(issuing: x509.Certificate) -> bytes:
    """Return a CA's subject key identifier, which every certificate of it repeats; raises `ConfigRefused`."""
    try:
        found = issuing.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    except (x509.ExtensionNotFound, x509.DuplicateExtension, ValueError):
        raise ConfigRefused(["the first CA certificate has no subject key identifier"]) from None
    return found.value.digest


def entry_of(certificates: list[x509.Certificate], state: State, **more: str | None) -> CaEntry:
    """Return the entry of a CA with these certificates, the issuing one first."""
    return CaEntry.model_validate(
        {
            "kid": ca_kid(certificates[0]),
            "state": state,
            "certificates": tuple(b64(one.public_bytes(Encoding.DER)) for one in certificates),
            **more,
        }
    )


def _first(path: Path) -> CaEntry:
    try:
        certificates = x509.load_pem_x509_certificates(read_public(path))
    except UNREADABLE:
        raise ConfigRefused([f"{path} holds no certificate in PEM"]) from None
    return entry_of(certificates, "active")
