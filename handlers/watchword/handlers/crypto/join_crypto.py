"""All the crypto that the join service is handed, in one place."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from watchword.handlers.crypto.jws import JwsSigner
from watchword.handlers.crypto.keysets import HeldKey
from watchword.handlers.crypto.profile import KEY_STATEMENT
from watchword.handlers.crypto.responses import Answers
from watchword.handlers.crypto.signer import Signer
from watchword.handlers.crypto.state import StateSealer
from watchword.handlers.errors import SealKeyUnknown
from watchword.schemas.topics import REQUEST_RETENTION_MS

DEFAULT_GRACE = timedelta(milliseconds=REQUEST_RETENTION_MS)
"""A request that was sealed in a key's last moment may wait on its topic for as long as this."""


class JoinCrypto:
    """Opens requests, seals states, signs answers, and knows who issues certificates."""

    def __init__(
        self,
        *,
        trust_domain: str,
        decryption: Iterable[HeldKey],
        answers: Answers,
        states: StateSealer,
        signer: Signer,
        grace: timedelta = DEFAULT_GRACE,
    ) -> None:
        """Take the keys. `grace` is how long a decryption key outlives its `not_after`."""
        self.trust_domain = trust_domain
        self.answers = answers
        self.states = states
        self.signer = signer
        self._grace = grace
        self._decryption = {held.kid: held for held in decryption}

    def take_over(
        self, decryption: Iterable[HeldKey], answers: JwsSigner, states: StateSealer
    ) -> None:
        """Go on with other keys from now on: between two steps of whatever is being judged."""
        self.answers.sign_with(answers)
        self.states = states
        self._decryption = {held.kid: held for held in decryption}

    def unseal(self, kid: str, sealed: bytes, info: bytes, now: datetime) -> bytes:
        """Return what was sealed to the key of this name under this `info`.

        A key opens before its `not_before` too: an agent whose clock is fast has done no wrong.

        Raises:
            SealKeyUnknown: the key is unknown, or past its grace.
            SealBroken: the seal does not open.
        """
        held = self._decryption.get(kid)
        if held is None or now >= held.not_after + self._grace:
            message = "no such decryption key is in use"
            raise SealKeyUnknown(message)
        return held.key.open(sealed, info)

    def knows_key_statement(self, uri: str) -> bool:
        """Tell whether a key statement is of the one form that can be proved again at renewal."""
        return KEY_STATEMENT.fullmatch(uri) is not None
