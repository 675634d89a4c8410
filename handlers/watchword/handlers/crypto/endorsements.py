"""The signing key: how agents know it, and how it hands over to the next one."""

from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256

from watchword.handlers.crypto.documents import read_document
from watchword.handlers.crypto.jws import JwsSigner, unverified_payload, verify
from watchword.handlers.errors import SignatureBroken
from watchword.schemas.canonical import b64, canonical, unb64
from watchword.schemas.endorsement import KeyEndorsement
from watchword.schemas.errors import WrongShape
from watchword.schemas.keyset import SigningKey
from watchword.schemas.responses import TYP_KEY_ENDORSEMENT
from watchword.schemas.times import rfc3339

_ED25519_SPKI = bytes.fromhex("302a300506032b6570032100")
"""What precedes the 32 bytes of an Ed25519 key in its SubjectPublicKeyInfo (RFC 8410, 4)."""

_KEY_BYTES = 32


def pin_of(public: bytes) -> str:
    """Return `sha256:` and the SHA-256 of the SPKI of a signing key, hexadecimal.

    `public` is 32 raw bytes of Ed25519. An operator hands the pin to agents out of band.
    """
    return f"sha256:{sha256(_ED25519_SPKI + public).hexdigest()}"


def endorse(
    old: JwsSigner, *, kid: str, public: bytes, issued_at: datetime, trust_domain: str
) -> bytes:
    """Return the old signing key's word for a new one, 32 raw bytes of Ed25519 named `kid`."""
    document = KeyEndorsement(
        trust_domain=trust_domain,
        issued_at=rfc3339(issued_at),
        by=SigningKey(kid=old.kid, public=b64(old.public)),
        signing=SigningKey(kid=kid, public=b64(public)),
    )
    return old.sign(canonical(document.model_dump(by_alias=True, mode="json")), TYP_KEY_ENDORSEMENT)


def read_endorsement(token: bytes, public: bytes, *, trust_domain: str) -> SigningKey:
    """Return the signing key that this key vouches for within this trust domain.

    Raises:
        SignatureBroken: not signed by that key as an endorsement, or for another trust domain.
        SchemaError: authentic, but no endorsement that this release knows.
    """
    endorsement = read_document(
        KeyEndorsement, verify(token, public, typ=TYP_KEY_ENDORSEMENT, kid=None)
    )
    if endorsement.trust_domain != trust_domain or unb64(endorsement.by.public) != public:
        raise SignatureBroken
    if len(unb64(endorsement.signing.public)) != _KEY_BYTES:
        message = "signing"
        raise WrongShape(message)
    return endorsement.signing


def line_of(handovers: Sequence[str], pin: str, *, trust_domain: str) -> tuple[SigningKey, ...]:
    """Return the signing keys from the pinned one on, each vouched for by the one before it.

    Empty if no statement is the pinned key's: it has not handed over yet. Statements before the pinned
    key's are older than the pin, and nobody looks at them.

    Raises:
        SignatureBroken: a statement is not the word of the key before it, or a key comes back.
        SchemaError: a statement is none that this release knows.
    """
    # 1. The pinned key's own statement is found by the key that it names; its signature follows.
    # 2. From there on each statement is signed by the key that the one before it has named.
    # 3. No key is there twice: what comes after a key must not be decided by going round.

    # Step 1
    tokens = [text.encode() for text in handovers]
    claimed = [read_document(KeyEndorsement, unverified_payload(token)) for token in tokens]
    begins = [n for n, one in enumerate(claimed) if pin_of(unb64(one.by.public)) == pin]
    if not begins:
        return ()

    # Step 2
    line = [claimed[begins[0]].by]
    for token in tokens[begins[0] :]:
        line.append(read_endorsement(token, unb64(line[-1].public), trust_domain=trust_domain))

    # Step 3
    if len({key.public for key in line}) != len(line):
        raise SignatureBroken
    return tuple(line)
