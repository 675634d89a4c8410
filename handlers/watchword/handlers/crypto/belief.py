"""Whom an agent believes, from a pin on: key set and trust bundle, and the signing keys that led to them.

The pin names one signing key, which may have handed over since: the trust bundle carries what each key
said of the next one (`endorsements`). Everything is judged from the pin each time, and a key that has been
left behind is never gone back to: whoever steals it later could sign whatever they like.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from watchword.handlers.crypto.documents import read_document
from watchword.handlers.crypto.endorsements import line_of, pin_of
from watchword.handlers.crypto.jws import unverified_kid, unverified_payload
from watchword.handlers.crypto.keysets import read_key_set, read_trust_bundle
from watchword.handlers.errors import SignatureBroken
from watchword.schemas.canonical import unb64
from watchword.schemas.keyset import KeySet, SigningKey, TrustBundle
from watchword.schemas.times import parse_rfc3339


@dataclass(frozen=True, slots=True)
class Belief:
    """Two documents, and the signing keys from the pinned one on."""

    key_set: KeySet
    bundle: TrustBundle | None
    line: tuple[SigningKey, ...]
    """The pinned key first; after the key set's own there is at most what is prepared to follow it."""

    @property
    def place(self) -> int:
        """Where in the line the key is that signed the key set: nothing before it is believed any more."""
        return [key.public for key in self.line].index(self.key_set.signing.public)

    def key_for(self, token: bytes, now: datetime | None) -> bytes:
        """Return the key, 32 raw bytes, that may have signed a document which is no key set and no bundle.

        That is the key set's own, the one that is prepared to follow it (workers change one after the
        other), and, until its time is over, one that the key set says is retired. Without a `now` no
        retired key counts.

        Raises:
            SignatureBroken: the token names none of them. Whether it is signed has still to be verified.
        """
        kid = unverified_kid(token)
        for key in self.line[self.place :]:
            if key.kid == kid:
                return unb64(key.public)
        if now is not None:
            # A clock that is behind the set's own issue is wrong, since the set exists.
            now = max(now, parse_rfc3339(self.key_set.issued_at))
            for retired in self.key_set.retired:
                if retired.kid == kid and now < parse_rfc3339(retired.not_after):
                    return unb64(retired.public)
        raise SignatureBroken


def believe(
    pin: str, key_set_token: bytes, bundle_token: bytes | None, *, before: Belief | None = None
) -> Belief:
    """Return what a key set and a trust bundle make believed; `before` is what was believed until now.

    Raises:
        SignatureBroken: a signature or a handover does not hold, a document is older than the one before, or the
            line does not lead on from the key that is trusted now.
        SchemaError: one of them is no document that this release knows.
    """
    # 1. The line: from the pin, by the handovers of the bundle, which nobody has verified yet.
    # 2. It goes through the key that is trusted now, by the same way: a fork that somebody made with a
    #    key from before leads elsewhere.
    # 3. The key set is signed by a key of the line, not before the one that is trusted now, and is not older.
    # 4. The same of the bundle, which may be signed by another key of them; it is of the same trust domain.

    # Step 1
    claimed = read_document(KeySet, unverified_payload(key_set_token))
    line = _line(pin, claimed, bundle_token)

    # Step 2
    least, least_bundle, place = 1, 1, 0
    if before is not None:
        place = before.place
        if _publics(line[: place + 1]) != _publics(before.line[: place + 1]):
            message = "the signing key that is trusted now has not handed over to this one"
            raise SignatureBroken(message)
        least = before.key_set.version
        least_bundle = 1 if before.bundle is None else before.bundle.version
    trusted = line[place:]

    # Step 3
    if claimed.signing.public not in _publics(trusted):
        message = "the key set is not signed by a key that the trusted one has handed over to"
        raise SignatureBroken(message)
    key_set = read_key_set(
        key_set_token,
        unb64(claimed.signing.public),
        kid=claimed.signing.kid,
        minimum_version=least,
    )

    # Step 4
    bundle: TrustBundle | None = None
    if bundle_token is not None:
        kid = unverified_kid(bundle_token)
        signers = [unb64(key.public) for key in trusted if key.kid == kid]
        if not signers:
            message = "the trust bundle is not signed by a key that is trusted"
            raise SignatureBroken(message)
        bundle = read_trust_bundle(bundle_token, signers[0], minimum_version=least_bundle)
        if bundle.trust_domain != key_set.trust_domain:
            raise SignatureBroken
    return Belief(key_set, bundle, line)


def _line(pin: str, claimed: KeySet, bundle_token: bytes | None) -> tuple[SigningKey, ...]:
    line: tuple[SigningKey, ...] = ()
    if bundle_token is not None:
        bundle = read_document(TrustBundle, unverified_payload(bundle_token))
        line = line_of(bundle.handovers, pin, trust_domain=claimed.trust_domain)
    if line:
        return line
    if pin_of(unb64(claimed.signing.public)) != pin:
        message = "the key set is not signed by the pinned key, and it has handed over to no other"
        raise SignatureBroken(message)
    return (claimed.signing,)


def _publics(keys: Sequence[SigningKey]) -> list[str]:
    return [key.public for key in keys]
