"""The published keys: what an agent needs to seal a request, signed by the pinned key."""

from typing import Annotated, Literal

from pydantic import Field

from watchword.schemas.requests import Wire
from watchword.schemas.responses import Instant

SUITE = "DHKEM-X25519-HKDF-SHA256-AES-128-GCM"
"""RFC 9180: kem 0x0020, kdf 0x0001, aead 0x0001."""


class EncryptionKey(Wire):
    """One key to seal to. `public` is 32 bytes of X25519 in base64."""

    kid: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    suite: Literal["DHKEM-X25519-HKDF-SHA256-AES-128-GCM"]
    public: Annotated[str, Field(min_length=44, max_length=44)]
    not_before: Instant
    not_after: Instant


class SigningKey(Wire):
    """The key that signs responses. `public` is 32 bytes of Ed25519 in base64."""

    kid: str
    public: Annotated[str, Field(min_length=44, max_length=44)]


class RetiredSigningKey(Wire):
    """A signing key that signs nothing new; its answers of a little while ago still count, until `not_after`."""

    kid: str
    public: Annotated[str, Field(min_length=44, max_length=44)]
    not_after: Instant


class KeySet(Wire):
    """The payload of the key set's JWS. An agent refuses a version lower than one it stored."""

    version: Annotated[int, Field(ge=1, lt=2**53)]
    issued_at: Instant
    trust_domain: str
    signing: SigningKey
    encryption: Annotated[
        tuple[EncryptionKey, ...], Field(min_length=1, max_length=16, strict=False)
    ]
    retired: Annotated[tuple[RetiredSigningKey, ...], Field(max_length=16, strict=False)] = ()


class TrustBundle(Wire):
    """The CA certificates that node certificates chain to: DER in base64. Its JWS has typ `watchword-trust-bundle`."""

    version: Annotated[int, Field(ge=1, lt=2**53)]
    issued_at: Instant
    trust_domain: str
    authorities: Annotated[tuple[str, ...], Field(min_length=1, max_length=16, strict=False)]
    handovers: Annotated[tuple[str, ...], Field(max_length=64, strict=False)] = ()
    """Key endorsements (JWS), the oldest first: how one signing key led to the next, up to the one that is prepared."""


TYP_TRUST_BUNDLE = "watchword-trust-bundle"
