"""What machines without a token lean on: an image's secret, a site's agent. Made by operators, through the product."""

import base64
import secrets
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.faults.judge.documents import canonical, parts_with_lengths

SITE = "north"
_GOOD_FOR_S = 600.0
_MAKER = "3c"
"""The first half of every MAC: an adapter's, not one that was made up locally."""


@dataclass(frozen=True, slots=True)
class ImageSecret:
    """An image's secret, as it is installed on many machines."""

    id: str
    secret: bytes = field(repr=False)

    @property
    def evidence(self) -> bytes:
        """The payload that shows it."""
        return parts_with_lengths(self.id.encode(), self.secret)


@dataclass(frozen=True, slots=True)
class SiteAgent:
    """An agent of a site, which vouches for machines that it has seen boot."""

    kid: str
    key: Ed25519PrivateKey = field(repr=False)

    def vouch(self, csr_sha256: bytes, hardware: "Hardware") -> bytes:
        """Return a fresh assertion: a JWS in compact form (RFC 7515) over canonical JSON."""
        expires = datetime.fromtimestamp(time.time() + _GOOD_FOR_S, UTC)
        head = {"alg": "Ed25519", "kid": self.kid, "typ": "watchword-discovery"}
        body = {
            "version": 1,
            "site": SITE,
            "csrSha256": csr_sha256.hex(),
            "macs": sorted(hardware.macs),
            "productUuid": hardware.uuid,
            "bmc": None,
            "nonce": secrets.token_hex(32),
            "expiresAt": f"{expires:%Y-%m-%dT%H:%M:%S}.000Z",
        }
        signed = _b64url(canonical(head)) + b"." + _b64url(canonical(body))
        return signed + b"." + _b64url(self.key.sign(signed))


@dataclass(frozen=True, slots=True)
class Hardware:
    """What a site's agent sees of a machine."""

    uuid: str
    macs: tuple[str, ...]

    @classmethod
    def new(cls) -> "Hardware":
        """Return a machine that nobody has seen."""
        number = secrets.token_hex(16)
        uuid = f"{number[:8]}-{number[8:12]}-4{number[13:16]}-8{number[17:20]}-{number[20:]}"
        # Of three random bytes two would be the same in every fifth run: two machines with one name.
        return cls(uuid, (_MAKER + secrets.token_hex(5), _MAKER + secrets.token_hex(5)))


@dataclass(frozen=True, slots=True)
class Anchors:
    """What a round begins with."""

    image: ImageSecret
    site: SiteAgent


def _b64url(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")
