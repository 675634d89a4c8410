"""One exchange: the key and the CSR that a machine asks with, and the round it is in.

```text
<state>/exchange/
├── key.pem      PKCS #8 (RFC 5958), or a TSS2 PRIVATE KEY; made here, and never leaves the machine
├── csr.der      PKCS #10 (RFC 2986), empty subject: names in a CSR are never copied
├── round.json   the request as it was or will be sent, and its answer once there is one
└── follows      of a renewal: the serial of the certificate that is renewed
```

Key and CSR stay for the whole exchange, because the service admits a CSR once and for ever: a new
round under the same CSR gets the admission of a round whose answer was lost, and never a second one.
"""

from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Literal, Protocol

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.hashes import SHA256, SHA384
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from pydantic import Field

from watchword.handlers.crypto.chains import UNREADABLE_FILE
from watchword.handlers.crypto.documents import read_document
from watchword.schemas.canonical import b64, canonical, unb64
from watchword.schemas.errors import SchemaError
from watchword.schemas.ids import Role
from watchword.schemas.requests import JoinRequest, Wire
from watchword.schemas.responses import Instant
from watchword.streams.agent import atomic_files
from watchword.streams.agent.errors import StateUnusable
from watchword.streams.agent.tpm.node_key import TpmKey, is_in_tpm, read_tpm_key

KeyKind = Literal["p256", "p384", "ed25519"]


_KEY = "key.pem"
_CSR = "csr.der"
_ROUND = "round.json"
_FOLLOWS = "follows"

PrivateKey = ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
ExchangeKey = PrivateKey | TpmKey


class Round(Wire):
    """One round: the exact bytes of its request, and what is needed to follow its answer."""

    version: Literal[1] = 1
    attestor: str
    role: Role
    request: str
    """Base64 of the bytes that are sent, and sent again while there is no answer."""
    encryption_key_id: str
    reply_key: Annotated[str | None, Field(repr=False)] = None
    """Base64 of 32 private bytes of X25519, where the answer comes sealed."""
    challenge_not_after: Instant | None = None
    """In a round that answers a challenge: until when that is worth anything, by the service's time."""
    answer: str | None = None
    """The signed answer as it came."""
    retry_at_ms: int | None = None
    """After an approval deferral: when to ask again, in milliseconds of the wall clock since 1970."""

    def request_bytes(self) -> bytes:
        """Return what is sent."""
        return unb64(self.request)

    @property
    def request_id(self) -> str:
        """The id of the request, by which the service's logs name it too."""
        try:
            return JoinRequest.read(self.request_bytes()).request_id
        except SchemaError:
            return "unreadable"

    def reply_private(self) -> bytes | None:
        """Return the 32 bytes that open the answer, or None if it comes in clear."""
        return None if self.reply_key is None else unb64(self.reply_key)

    def write(self) -> bytes:
        """Return the file's content."""
        return canonical(self.model_dump(by_alias=True, mode="json"))


@dataclass(frozen=True, slots=True)
class Exchange:
    """A key, its CSR, and the folder in which they and the round stand."""

    folder: Path
    key: ExchangeKey = field(repr=False)
    csr_der: bytes = field(repr=False)

    @property
    def follows(self) -> str | None:
        """The serial of the certificate that is renewed; None for a join."""
        try:
            return (self.folder / _FOLLOWS).read_text()
        except (OSError, ValueError):
            return None

    @property
    def csr_sha256(self) -> bytes:
        """32 bytes, by which everyone names this exchange; an operator compares it before approving."""
        return sha256(self.csr_der).digest()

    @property
    def spki_der(self) -> bytes:
        """The public key's SubjectPublicKeyInfo."""
        return self.key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)

    def key_pem(self) -> bytes:
        """Return the private key as PKCS #8 in PEM, without a password; or the file of one in the TPM."""
        return self.key.pem if isinstance(self.key, TpmKey) else _key_pem(self.key)

    def round(self) -> Round | None:
        """Return the round that was written last; None if there is none that can be read.

        An unreadable one is as good as none: a fresh round under the same CSR loses nothing.
        """
        try:
            return read_document(Round, (self.folder / _ROUND).read_bytes())
        except (OSError, SchemaError):
            return None

    def save(self, current: Round) -> None:
        """Write the round to the disk; raises `OSError`."""
        atomic_files.write_file(self.folder / _ROUND, current.write())

    def drop_round(self) -> None:
        """Forget the round, and keep key and CSR; raises `OSError`."""
        atomic_files.remove(self.folder / _ROUND)


class _HasPublic(Protocol):
    def public_key(self) -> ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey: ...


def begin(folder: Path, kind: KeyKind, *, follows: str | None = None) -> Exchange:
    """Make a key and its CSR and write both, whole or not at all; raises `OSError`."""
    key = _generate(kind)
    csr_der = make_csr(key)
    files = {_KEY: _key_pem(key), _CSR: csr_der}
    if follows is not None:
        files[_FOLLOWS] = follows.encode()
    atomic_files.write_folder(folder, files)
    return Exchange(folder, key, csr_der)


def begin_in_tpm(
    folder: Path, key_pem: bytes, csr_der: bytes, *, follows: str | None = None
) -> Exchange:
    """Begin with a key that a TPM has made, and the CSR that it has signed; raises `OSError`, `ValueError`."""
    key = read_tpm_key(key_pem)
    files = {_KEY: key_pem, _CSR: csr_der}
    if follows is not None:
        files[_FOLLOWS] = follows.encode()
    atomic_files.write_folder(folder, files)
    return Exchange(folder, key, csr_der)


def load(folder: Path) -> Exchange | None:
    """Return the exchange in this folder; None if there is no folder.

    Raises:
        StateUnusable: key or CSR cannot be read, or do not belong together.
    """
    if not folder.is_dir():
        return None
    try:
        pem = (folder / _KEY).read_bytes()
        key = read_tpm_key(pem) if is_in_tpm(pem) else load_pem_private_key(pem, password=None)
        csr_der = (folder / _CSR).read_bytes()
        csr = x509.load_der_x509_csr(csr_der)
        if not isinstance(key, ExchangeKey) or not _is_of(csr, key):
            message = f"{folder}: the CSR is not the key's; remove the folder to begin anew"
            raise StateUnusable(message)
    except UNREADABLE_FILE as error:
        message = (
            f"{folder} cannot be read ({type(error).__name__}); remove the folder to begin anew"
        )
        raise StateUnusable(message) from None
    return Exchange(folder, key, csr_der)


def encoded(data: bytes | None) -> str | None:
    """Return base64 for a field of `Round` that may be absent."""
    return None if data is None else b64(data)


def _is_of(csr: x509.CertificateSigningRequest, key: _HasPublic) -> bool:
    return csr.public_key() == key.public_key()


def _generate(kind: KeyKind) -> PrivateKey:
    match kind:
        case "p256":
            return ec.generate_private_key(ec.SECP256R1())
        case "p384":
            return ec.generate_private_key(ec.SECP384R1())
        case "ed25519":
            return ed25519.Ed25519PrivateKey.generate()


def make_csr(key: PrivateKey) -> bytes:
    """Return a CSR with an empty subject, DER: what it is for is said elsewhere."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    if isinstance(key, ed25519.Ed25519PrivateKey):
        csr = builder.sign(key, None)
    else:
        csr = builder.sign(key, SHA384() if isinstance(key.curve, ec.SECP384R1) else SHA256())
    return csr.public_bytes(Encoding.DER)


def _key_pem(key: PrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
