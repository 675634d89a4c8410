"""The machine's half: its serial number, and the key in its HSM."""

from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from acme_rack.evidence import Proof, Serial, encode, signed_text
from watchword.handlers.attestor import Role


@dataclass
class RackProver:
    """Signs with a key at hand; a real machine asks its HSM."""

    serial: str
    key: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate, repr=False)
    id: str = "acme-rack"

    async def evidence(self, csr_sha256: bytes, role: Role) -> bytes:
        """Return the serial number."""
        del csr_sha256, role
        return encode(Serial(self.serial))

    async def answer(self, challenge: bytes, csr_sha256: bytes, role: Role) -> bytes:
        """Return the signature over a challenge."""
        return encode(Proof(self.key.sign(signed_text(role, csr_sha256, challenge))))
