"""The machine's half: it has been given a tag, and a vendor who signs for it."""

from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from acme_asset.evidence import encode, signed_text
from watchword.handlers.attestor import Role
from watchword.handlers.prover import NoEvidence


@dataclass(frozen=True)
class AssetProver:
    """Asks the vendor to sign. In a factory the vendor's key is far away; here it is at hand."""

    vendor: str
    key: Ed25519PrivateKey = field(repr=False)
    tag: str
    id: str = "acme-asset"

    async def evidence(self, csr_sha256: bytes, role: Role) -> bytes:
        """Return the signed tag."""
        signature = self.key.sign(signed_text(role, self.tag, csr_sha256))
        return encode(self.vendor, self.tag, signature)

    async def answer(self, challenge: bytes, csr_sha256: bytes, role: Role) -> bytes:
        """Raise `NoEvidence`: nobody asks."""
        del challenge, csr_sha256, role
        message = "acme-asset has one round"
        raise NoEvidence(message)
