"""The machine's half: it has been given a tag, and a vendor who signs for it."""

from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from acme_asset.evidence import encode, signed_text
from watchword.handlers.attestor import Role
from watchword.handlers.errors import BadArgument
from watchword.handlers.prover import NoEvidence, ProverSettings, read_source, text_setting


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


def from_settings(settings: ProverSettings) -> AssetProver:
    """Return the prover that `watchword agent join --attestor acme-asset` uses.

    Settings: `vendor`, `tag`, and `vendor_key_file`, the vendor's key as PEM.

    Raises:
        BadArgument: one is missing, or the file has no Ed25519 key.
        NoEvidence: the file cannot be read.
    """
    file = Path(text_setting(settings, "vendor_key_file"))
    try:
        key = load_pem_private_key(read_source(file, 4096), password=None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        message = f"{file}: no Ed25519 key, PEM"
        raise BadArgument(message)
    return AssetProver(text_setting(settings, "vendor"), key, text_setting(settings, "tag"))
