"""Makes the key of `sim-restricted`: `python -m watchword.streams.simulator.make_key signing.pem public.pem`."""

import os
import sys
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)


def make_key(signing: Path, public: Path) -> None:
    """Write a new key in two files, PEM; the private one is for its owner alone, and must not be there yet."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    with os.fdopen(os.open(signing, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(private)
    public.write_bytes(
        key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )


if __name__ == "__main__":
    make_key(Path(sys.argv[1]), Path(sys.argv[2]))
