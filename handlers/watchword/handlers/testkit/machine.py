"""A machine that wants to join: a key, a CSR, and evidence sealed as an agent seals it."""

from dataclasses import dataclass, field
from hashlib import sha256

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from uuid_utils.compat import uuid7

from watchword.handlers.crypto.sealing import UNSEALED, seal_evidence
from watchword.schemas.canonical import b64
from watchword.schemas.ids import Role
from watchword.schemas.requests import Claims, JoinRequest


def new_key() -> ec.EllipticCurvePrivateKey:
    """Return a fresh P-256 key."""
    return ec.generate_private_key(ec.SECP256R1())


def make_csr(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a CSR without names, DER, signed by the key (RFC 2986)."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    return builder.sign(key, SHA256()).public_bytes(Encoding.DER)


@dataclass(frozen=True)
class Machine:
    """A machine; `seal_to` is the service's public key, 32 bytes of X25519, under the name `key_id`."""

    seal_to: bytes
    key_id: str
    key: ec.EllipticCurvePrivateKey = field(default_factory=new_key, repr=False)
    csr: bytes = field(init=False, repr=False)
    """DER."""

    def __post_init__(self) -> None:
        """Make the CSR, once: every round of a join has the same."""
        object.__setattr__(self, "csr", make_csr(self.key))

    @property
    def csr_sha256(self) -> bytes:
        """SHA-256 of the CSR's DER: what evidence is bound to."""
        return sha256(self.csr).digest()

    def request(
        self,
        payload: bytes,
        *,
        attestor: str,
        role: Role = "node",
        claims: Claims | None = None,
        state: bytes | None = None,
    ) -> bytes:
        """Return the canonical bytes of a new request with this evidence; each has another request id."""
        unsealed = JoinRequest(
            version=1,
            kind="join",
            request_id=str(uuid7()),
            attestor=attestor,
            role=role,
            csr=b64(self.csr),
            encryption_key_id=self.key_id,
            sealed=UNSEALED,
            state=None if state is None else b64(state),
            reply_key=None,
        )
        return seal_evidence(unsealed, self.seal_to, payload, claims or b"").write()
