"""The published documents: key set and trust bundle, signed and read.

An agent trusts one signing key, known by its pin. That key signs the key set, in which it names
itself; a new signing key is trusted only with an endorsement by the old one (`endorsements`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from watchword.handlers.crypto.documents import read_document
from watchword.handlers.crypto.endorsements import pin_of
from watchword.handlers.crypto.hpke import DecryptionKey, check_public
from watchword.handlers.crypto.jws import JwsSigner, unverified_payload, verify
from watchword.handlers.errors import SealBroken, SignatureBroken, Unavailable
from watchword.schemas.canonical import b64, canonical, unb64
from watchword.schemas.errors import WrongShape
from watchword.schemas.keyset import (
    TYP_TRUST_BUNDLE,
    EncryptionKey,
    KeySet,
    RetiredSigningKey,
    SigningKey,
    TrustBundle,
)
from watchword.schemas.responses import TYP_KEY_SET
from watchword.schemas.times import parse_rfc3339, rfc3339


@dataclass(frozen=True, slots=True)
class HeldKey:
    """A decryption key that a worker holds, and when agents may seal to it."""

    kid: str
    key: DecryptionKey
    not_before: datetime
    not_after: datetime
    is_published: bool = True
    """False for one that is prepared: workers open with it, and agents are not told of it yet."""


def sign_key_set(
    jws: JwsSigner,
    *,
    version: int,
    issued_at: datetime,
    trust_domain: str,
    encryption: Sequence[HeldKey],
    retired: Sequence[RetiredSigningKey] = (),
) -> bytes:
    """Return the signed key set with every published key that is not past at `issued_at`.

    Raises:
        Unavailable: every key is past: nothing could be sealed.
    """
    usable = tuple(
        EncryptionKey(
            kid=held.kid,
            suite="DHKEM-X25519-HKDF-SHA256-AES-128-GCM",
            public=b64(held.key.public),
            not_before=rfc3339(held.not_before),
            not_after=rfc3339(held.not_after),
        )
        for held in encryption
        if held.is_published and held.not_after > issued_at
    )
    if not usable:
        message = "every encryption key has expired"
        raise Unavailable(message)
    document = KeySet(
        version=version,
        issued_at=rfc3339(issued_at),
        trust_domain=trust_domain,
        signing=SigningKey(kid=jws.kid, public=b64(jws.public)),
        encryption=usable,
        retired=tuple(key for key in retired if parse_rfc3339(key.not_after) > issued_at),
    )
    return jws.sign(canonical(document.model_dump(by_alias=True, mode="json")), TYP_KEY_SET)


def read_key_set(
    token: bytes, public: bytes, *, kid: str | None = None, minimum_version: int = 1
) -> KeySet:
    """Return the key set that the pinned key signed.

    Raises:
        SignatureBroken: not signed by that key as a key set, it names another signing key, or its
            version is lower than `minimum_version`, the last one stored.
        SchemaError: authentic, but no key set that this release knows.
    """
    # 1. The signature of the pinned key, under the type of key sets.
    # 2. Shape; every key can be sealed to, its times are times, no name stands for two keys.
    # 3. The set is of the very key that signed it.
    # 4. Nobody plays an old set, whose private keys may be known by now.

    # Step 1
    payload = verify(token, public, typ=TYP_KEY_SET, kid=kid)

    # Step 2
    key_set = read_document(KeySet, payload)
    _check_encryption(key_set)

    # Step 3
    if unb64(key_set.signing.public) != public:
        raise SignatureBroken

    # Step 4
    _check_version(key_set, minimum_version)
    return key_set


def bootstrap_key_set(token: bytes, pin: str, *, minimum_version: int = 1) -> KeySet:
    """Return a key set on the word of a pin alone: for an agent that knows no key yet.

    The set names its signing key; it counts only if that key has the pin and signed the set.

    Raises:
        SignatureBroken, SchemaError: as `read_key_set`.
    """
    claimed = read_document(KeySet, unverified_payload(token))
    public = unb64(claimed.signing.public)
    if pin_of(public) != pin:
        message = "the key set is not signed by the pinned key"
        raise SignatureBroken(message)
    return read_key_set(token, public, kid=claimed.signing.kid, minimum_version=minimum_version)


def choose_encryption_key(key_set: KeySet, at: datetime) -> EncryptionKey:
    """Return the newest key that may be sealed to at `at`.

    A clock that is behind the set's own issue is wrong, since the set exists: then the time of issue
    counts. (Machines without a clock battery wake up in 1970.)

    Raises:
        Unavailable: there is none: a newer key set is needed.
    """
    at = max(at, parse_rfc3339(key_set.issued_at))
    usable = [
        key
        for key in key_set.encryption
        if parse_rfc3339(key.not_before) <= at < parse_rfc3339(key.not_after)
    ]
    if not usable:
        message = "no encryption key is valid now"
        raise Unavailable(message)
    return max(usable, key=lambda key: key.not_before)  # RFC 3339 in one form sorts as text


def sign_trust_bundle(
    jws: JwsSigner,
    *,
    version: int,
    issued_at: datetime,
    trust_domain: str,
    authorities: Sequence[bytes],
    handovers: Sequence[str] = (),
) -> bytes:
    """Return the signed trust bundle; `authorities` are CA certificates, DER; `handovers` lead to the signer."""
    document = TrustBundle(
        version=version,
        issued_at=rfc3339(issued_at),
        trust_domain=trust_domain,
        authorities=tuple(b64(authority) for authority in authorities),
        handovers=tuple(handovers),
    )
    return jws.sign(canonical(document.model_dump(by_alias=True, mode="json")), TYP_TRUST_BUNDLE)


def read_trust_bundle(
    token: bytes, public: bytes, *, kid: str | None = None, minimum_version: int = 1
) -> TrustBundle:
    """Return the trust bundle that the pinned key signed; raises as `read_key_set` does."""
    bundle = read_document(TrustBundle, verify(token, public, typ=TYP_TRUST_BUNDLE, kid=kid))
    _check_version(bundle, minimum_version)
    return bundle


def _check_encryption(key_set: KeySet) -> None:
    """Return only if each key can be used, and each name stands for one key."""
    try:
        for key in key_set.encryption:
            check_public(unb64(key.public))
            parse_rfc3339(key.not_before)
            parse_rfc3339(key.not_after)
        for retired in key_set.retired:
            parse_rfc3339(retired.not_after)
    except (SealBroken, ValueError):
        message = "encryption"
        raise WrongShape(message) from None
    if len({key.kid for key in key_set.encryption}) != len(key_set.encryption):
        message = "encryption"
        raise WrongShape(message)


def _check_version(document: KeySet | TrustBundle, minimum: int) -> None:
    if document.version < minimum:
        message = f"version {document.version} is older than {minimum}, which was seen before"
        raise SignatureBroken(message)
