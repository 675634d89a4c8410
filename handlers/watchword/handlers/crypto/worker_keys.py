"""The keys that a worker holds: everything but the CA key."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from watchword.handlers.crypto.endorsements import pin_of
from watchword.handlers.crypto.join_crypto import DEFAULT_GRACE, JoinCrypto
from watchword.handlers.crypto.jws import JwsSigner
from watchword.handlers.crypto.keysets import HeldKey, sign_key_set, sign_trust_bundle
from watchword.handlers.crypto.responses import Answers
from watchword.handlers.crypto.signer import Signer
from watchword.handlers.crypto.state import StateSealer
from watchword.schemas.keyset import RetiredSigningKey


@dataclass(frozen=True, slots=True)
class WorkerKeys:
    """One loaded version of a key directory."""

    trust_domain: str
    version: int
    """Of the key set and the trust bundle."""
    signing: JwsSigner
    decryption: tuple[HeldKey, ...]
    states: StateSealer
    ca_certificates: tuple[bytes, ...]
    """The issuing CA's certificates, DER, issuing one first; the last is what agents anchor to."""
    authorities: tuple[bytes, ...] = ()
    """What agents anchor to, DER, of every CA that is prepared, active or retired; the active one's first."""
    handovers: tuple[str, ...] = ()
    """How the first signing key led to this one, and to the one that is prepared."""
    retired: tuple[RetiredSigningKey, ...] = ()
    kids: frozenset[str] = frozenset()
    """The names of all keys that a worker has loaded."""

    @property
    def pin(self) -> str:
        """What agents are given out of band to know the signing key by."""
        return pin_of(self.signing.public)

    def key_set(self, issued_at: datetime) -> bytes:
        """Return the signed key set; raises `Unavailable` if every decryption key is past."""
        return sign_key_set(
            self.signing,
            version=self.version,
            issued_at=issued_at,
            trust_domain=self.trust_domain,
            encryption=self.decryption,
            retired=self.retired,
        )

    def trust_bundle(self, issued_at: datetime) -> bytes:
        """Return the signed trust bundle."""
        return sign_trust_bundle(
            self.signing,
            version=self.version,
            issued_at=issued_at,
            trust_domain=self.trust_domain,
            authorities=self.authorities or self.ca_certificates[-1:],
            handovers=self.handovers,
        )

    def join_crypto(self, signer: Signer, *, grace: timedelta = DEFAULT_GRACE) -> JoinCrypto:
        """Return what the join service is handed."""
        return JoinCrypto(
            trust_domain=self.trust_domain,
            decryption=self.decryption,
            answers=Answers(self.signing),
            states=self.states,
            signer=signer,
            grace=grace,
        )
