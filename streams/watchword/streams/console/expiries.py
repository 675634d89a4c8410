"""When certificates in files end: CAs and anchors that this process can read."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cryptography import x509

from watchword.handlers.crypto.chains import UNREADABLE_FILE

_PEM = b"-----BEGIN CERTIFICATE-----"


@dataclass(frozen=True, slots=True)
class Expiry:
    """A certificate with its file, its subject, and its end."""

    file: str
    subject: str
    not_after: datetime


def expiries(paths: Iterable[Path]) -> Sequence[Expiry]:
    """Return the certificates of files, and of files in folders, by their end; what cannot be read is passed over."""
    found: list[Expiry] = []
    for path in paths:
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        for file in files:
            found += _of_file(file)
    return sorted(found, key=lambda one: one.not_after)


def _of_file(file: Path) -> list[Expiry]:
    try:
        data = file.read_bytes()
        if _PEM in data:
            certificates = x509.load_pem_x509_certificates(data)
        elif file.suffix in {".der", ".cer", ".crt"}:
            certificates = [x509.load_der_x509_certificate(data)]
        else:
            return []
        return [
            Expiry(file.name, one.subject.rfc4514_string(), one.not_valid_after_utc)
            for one in certificates
        ]
    except UNREADABLE_FILE:
        return []
