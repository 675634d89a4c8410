"""How the pinned signing key vouches for the next one."""

from watchword.schemas.keyset import SigningKey
from watchword.schemas.requests import Wire
from watchword.schemas.responses import Instant


class KeyEndorsement(Wire):
    """The payload of an endorsement's JWS (typ `watchword-key-endorsement`), signed by the old key.

    Whoever trusts `by`, the key that signed it, may trust `signing` after it, within the trust domain.
    """

    trust_domain: str
    issued_at: Instant
    by: SigningKey
    signing: SigningKey
