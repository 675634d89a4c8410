"""The folder of keys: which file holds what, and in which form.

```text
<directory>/                 mode 0700
├── keys.json                trust domain, key set version, which keys are in use and until when
├── ca.json                  the node CAs, once there is more than the first (`camanifest`); public
├── ca.key.pem               the first CA's key: read by the signer alone, who is another user
├── ca.cert.pem              its certificates, issuing CA first; public
├── ca/<kid>.pem             the keys of those that follow it; not of those in a hardware module
├── signing.key.pem          Ed25519: signs responses, key sets and bundles; the first one
├── signing/<kid>.pem        those that follow it
├── decryption/<kid>.pem     X25519: opens requests
└── challenge/<kid>.key      32 bytes, hexadecimal: seals states
```

Private keys are PKCS #8 in PEM (RFC 5958, RFC 7468) without a password, mode 0600. One that its
group or others can read is refused: whoever could read it may have.
"""

import binascii
import secrets
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from watchword.handlers.crypto.ca_certificates import create_ca
from watchword.handlers.crypto.camanifest import CA_CERTIFICATES, CaEntry, ca_kid, entry_of
from watchword.handlers.crypto.chains import UNREADABLE
from watchword.handlers.crypto.endorsements import pin_of
from watchword.handlers.crypto.hpke import DecryptionKey
from watchword.handlers.crypto.jws import JwsSigner
from watchword.handlers.crypto.keymanifest import ChallengeEntry, DecryptionEntry, SigningEntry
from watchword.handlers.crypto.private_files import (
    make_private_folder,
    read_private,
    read_public,
    write_new,
)
from watchword.handlers.crypto.state import CHALLENGE_KEY_BYTES
from watchword.handlers.errors import ConfigRefused
from watchword.schemas.canonical import b64
from watchword.schemas.times import rfc3339

_NO_FILE: tuple[type[Exception], ...] = (ConfigRefused, *UNREADABLE)

_CA_KEY = "ca.key.pem"
_CA = "ca"
_SIGNING_KEY = "signing.key.pem"
_SIGNING = "signing"
_DECRYPTION = "decryption"
_CHALLENGE = "challenge"


class KeyDirectory:
    """Reads and makes the files. Reading raises `ConfigRefused` for whatever is not usable."""

    def __init__(self, path: Path) -> None:
        """Take the folder."""
        self.path = path

    def make_folders(self) -> None:
        """Make the folder and those inside, for the owner alone."""
        for folder in (self.path, self.path / _DECRYPTION, self.path / _CHALLENGE):
            make_private_folder(folder)

    def signing(self, kid: str | None = None) -> JwsSigner:
        """Return a signing key; the first one without a `kid`. Its name is the beginning of its pin's digest."""
        path = self.path / _SIGNING / f"{kid}.pem"
        if kid is None or not path.exists():
            path = self.path / _SIGNING_KEY
        found = self._signing(path)
        if kid not in (None, found.kid):
            raise ConfigRefused([f"{path} is not the signing key {kid}"])
        return found

    def _signing(self, path: Path) -> JwsSigner:
        key = _read_key(path)
        if not isinstance(key, Ed25519PrivateKey):
            raise ConfigRefused([f"{path} is not an Ed25519 key"])
        kid = pin_of(key.public_key().public_bytes_raw()).removeprefix("sha256:")[:16]
        return JwsSigner(kid, key)

    def decryption(self, kid: str) -> DecryptionKey:
        """Return one decryption key."""
        path = self.path / _DECRYPTION / f"{kid}.pem"
        key = _read_key(path)
        if not isinstance(key, X25519PrivateKey):
            raise ConfigRefused([f"{path} is not an X25519 key"])
        return DecryptionKey(key.private_bytes_raw())

    def challenge(self, kid: str) -> bytes:
        """Return one challenge key, 32 bytes."""
        path = self.path / _CHALLENGE / f"{kid}.key"
        try:
            key = binascii.unhexlify(read_private(path).strip())
        except binascii.Error:
            key = b""
        if len(key) != CHALLENGE_KEY_BYTES:
            raise ConfigRefused([f"{path} is not {CHALLENGE_KEY_BYTES} bytes in hexadecimal"])
        return key

    def ca_key(self, kid: str | None = None) -> ec.EllipticCurvePrivateKey:
        """Return a node CA's key; the first one's without a `kid`. Only the signer reads it, and who makes CAs."""
        path = self.path / _CA / f"{kid}.pem"
        if kid is None or not path.exists():
            path = self.path / _CA_KEY
        key = _read_key(path)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ConfigRefused([f"{path} is not an ECDSA key"])
        return key

    def ca_key_of(self, entry: CaEntry) -> ec.EllipticCurvePrivateKey:
        """Return the key of a CA's entry, which must be in a file."""
        if entry.in_hsm is not None:
            problem = f"the key of {entry.kid} is in a hardware module: set signer.pkcs11_module"
            raise ConfigRefused([problem])
        return self.ca_key(entry.kid)

    def make_signing(self) -> None:
        """Make a signing key unless there is one."""
        write_new(self.path / _SIGNING_KEY, _pem(Ed25519PrivateKey.generate()))

    def make_next_signing(self, now: datetime) -> SigningEntry:
        """Make another signing key and return its entry, without a handover yet."""
        key = Ed25519PrivateKey.generate()
        public = key.public_key().public_bytes_raw()
        kid = pin_of(public).removeprefix("sha256:")[:16]
        make_private_folder(self.path / _SIGNING)
        write_new(self.path / _SIGNING / f"{kid}.pem", _pem(key))
        return SigningEntry(kid=kid, public=b64(public), state="prepared", prepared_at=rfc3339(now))

    def make_ca(self, trust_domain: str, *, now: datetime) -> None:
        """Make a CA key unless there is one, and a certificate for it unless there is one."""
        key, certificate = create_ca(trust_domain, now=now)
        if not write_new(self.path / _CA_KEY, _pem(key)):
            _, certificate = create_ca(trust_domain, now=now, key=self.ca_key())
        write_new(self.path / CA_CERTIFICATES, certificate.public_bytes(Encoding.PEM), public=True)

    def make_next_ca(self, trust_domain: str, *, now: datetime) -> CaEntry:
        """Make another CA and return its entry."""
        key, certificate = create_ca(trust_domain, now=now, is_distinct=True)
        entry = entry_of([certificate], "prepared", prepared_at=rfc3339(now))
        make_private_folder(self.path / _CA)
        write_new(self.path / _CA / f"{entry.kid}.pem", _pem(key))
        return entry

    def make_decryption(self, *, begins: datetime, lifetime: timedelta) -> DecryptionEntry:
        """Make a decryption key, to be sealed to from `begins` on, and return its entry."""
        ends = rfc3339(begins + lifetime)
        return DecryptionEntry(
            kid=self._new_decryption(), not_before=rfc3339(begins), not_after=ends
        )

    def make_next_decryption(self, now: datetime) -> DecryptionEntry:
        """Make a decryption key that nobody seals to yet, and return its entry."""
        return DecryptionEntry(kid=self._new_decryption(), prepared_at=rfc3339(now))

    def _new_decryption(self) -> str:
        key = X25519PrivateKey.generate()
        kid = f"e-{sha256(key.public_key().public_bytes_raw()).hexdigest()[:16]}"
        write_new(self.path / _DECRYPTION / f"{kid}.pem", _pem(key))
        return kid

    def make_challenge(self, now: datetime | None = None) -> ChallengeEntry:
        """Make a challenge key and return its entry."""
        kid = f"c-{secrets.token_hex(8)}"
        key = secrets.token_bytes(CHALLENGE_KEY_BYTES)
        write_new(self.path / _CHALLENGE / f"{kid}.key", f"{key.hex()}\n".encode())
        return ChallengeEntry(kid=kid, prepared_at=None if now is None else rfc3339(now))

    def remove_decryption(self, kid: str) -> None:
        """Delete a decryption key that no manifest names any more."""
        (self.path / _DECRYPTION / f"{kid}.pem").unlink(missing_ok=True)

    def remove_challenge(self, kid: str) -> None:
        """Delete a challenge key that no manifest names any more."""
        (self.path / _CHALLENGE / f"{kid}.key").unlink(missing_ok=True)

    def remove_signing(self, kid: str) -> None:
        """Delete a signing key that no manifest names any more."""
        path = self.path / _SIGNING / f"{kid}.pem"
        if not path.exists() and self._signing(self.path / _SIGNING_KEY).kid == kid:
            path = self.path / _SIGNING_KEY
        path.unlink(missing_ok=True)

    def remove_ca(self, kid: str) -> None:
        """Delete the key of a CA that no manifest names any more; nothing is to be deleted of one in a module."""
        path = self.path / _CA / f"{kid}.pem"
        if not path.exists() and _is_first_ca(self.path, kid):
            path = self.path / _CA_KEY
        path.unlink(missing_ok=True)


def _is_first_ca(folder: Path, kid: str) -> bool:
    try:
        certificates = x509.load_pem_x509_certificates(read_public(folder / CA_CERTIFICATES))
    except _NO_FILE:
        return False
    return ca_kid(certificates[0]) == kid


def _pem(key: Ed25519PrivateKey | X25519PrivateKey | ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _read_key(path: Path) -> PrivateKeyTypes:
    try:
        return load_pem_private_key(read_private(path), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        # Nothing of the parser's message: it may quote what it has read.
        raise ConfigRefused([f"{path} is not an unencrypted private key in PEM"]) from None
