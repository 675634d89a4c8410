"""What the agent believes: one pinned signing key, those it has handed over to, and the documents that they signed.

Everything is read again from the pin each time: a key set on the disk is worth no more than one from
the network. A document older than the one stored is refused, whoever brings it, because the private
keys of an old set may be known by now; and so is one of a signing key that was left behind.
"""

from dataclasses import dataclass
from datetime import datetime

import structlog
from cryptography import x509

from watchword.handlers.crypto.belief import Belief, believe
from watchword.handlers.errors import SignatureBroken
from watchword.schemas.canonical import unb64
from watchword.schemas.errors import SchemaError
from watchword.schemas.keyset import KeySet, TrustBundle
from watchword.schemas.times import parse_rfc3339
from watchword.streams.agent.backoff import Pace
from watchword.streams.agent.certificates import load_authorities
from watchword.streams.agent.clock import AgentClock
from watchword.streams.agent.errors import (
    NotBootstrapped,
    PinMismatch,
    StateUnusable,
    TransportRefused,
    TransportUnavailable,
)
from watchword.streams.agent.keystore import Keystore
from watchword.streams.agent.transport import Transport

_log = structlog.get_logger(__name__)

_GOOD_FOR_S = 300.0


@dataclass(frozen=True, slots=True)
class Trust:
    """The pin, and what it makes believed."""

    pin: str
    belief: Belief

    @property
    def key_set(self) -> KeySet:
        """The newest key set."""
        return self.belief.key_set

    @property
    def bundle(self) -> TrustBundle | None:
        """The newest trust bundle; None while there is none."""
        return self.belief.bundle

    @property
    def signing_public(self) -> bytes:
        """32 raw bytes of Ed25519: the key that signed the key set."""
        return unb64(self.key_set.signing.public)

    def key_for(self, token: bytes, now: datetime | None = None) -> bytes:
        """Return the key that may have signed an answer or a command; see `Belief.key_for`."""
        return self.belief.key_for(token, now)

    @property
    def authorities(self) -> list[x509.Certificate]:
        """The CA certificates of the trust bundle; empty while there is none."""
        return [] if self.bundle is None else load_authorities(self.bundle.authorities)


def load_trust(keystore: Keystore, clock: AgentClock) -> Trust:
    """Return what was stored at bootstrap and since.

    Raises:
        NotBootstrapped: nothing was.
        StateUnusable: what is stored does not hold.
    """
    pin_bytes, token = keystore.read("pin"), keystore.read("key-set.jws")
    if pin_bytes is None or token is None:
        raise NotBootstrapped
    bundle_token = keystore.read("trust-bundle.jws")
    try:
        pin = pin_bytes.decode("ascii").strip()
        belief = believe(pin, token, bundle_token)
    except (SignatureBroken, SchemaError, UnicodeDecodeError) as error:
        message = (
            f"{keystore.directory}: the stored keys do not hold ({type(error).__name__});"
            " remove pin, key-set.jws and trust-bundle.jws and bootstrap again"
        )
        raise StateUnusable(message) from None
    clock.learn(parse_rfc3339(belief.key_set.issued_at))
    return Trust(pin, belief)


async def refresh_trust(trust: Trust, keystore: Keystore, transport: Transport) -> Trust:
    """Return the trust with what is newer at the service, stored; the old one where that is away or bad.

    Raises:
        StateUnusable: the disk.
    """
    try:
        token = await transport.key_set()
        bundle_token = await transport.trust_bundle()
    except (TransportUnavailable, TransportRefused) as error:
        _log.info("published keys could not be fetched", error=str(error))
        return trust
    try:
        belief = believe(trust.pin, token, bundle_token, before=trust.belief)
    except (SignatureBroken, SchemaError) as error:
        _log.warning("published keys are not acceptable", error=str(error))
        return trust
    # The bundle first: it says how the pin leads to the key of a key set, and not the other way round.
    if belief.bundle != trust.bundle:
        keystore.write("trust-bundle.jws", bundle_token)
    if belief.key_set != trust.key_set:
        keystore.write("key-set.jws", token)
    if belief.key_set.signing != trust.key_set.signing:
        _log.info("signing key has changed", kid=belief.key_set.signing.kid)
    transport.clock.learn(parse_rfc3339(belief.key_set.issued_at))
    return Trust(trust.pin, belief)


class TrustKeeper:
    """The trust of one run, fetched again when it has become old."""

    def __init__(self, keystore: Keystore, transport: Transport, *, pace: Pace) -> None:
        """Load what is stored; raises as `load_trust` does."""
        self.current = load_trust(keystore, transport.clock)
        self._keystore = keystore
        self._transport = transport
        self._pace = pace
        self._good_until = float("-inf")

    async def fresh(self) -> Trust:
        """Return a trust that was fetched in the last five minutes, or could not be; raises `StateUnusable`."""
        if self._pace.monotonic() >= self._good_until:
            await self.refresh()
        return self.current

    async def refresh(self) -> Trust:
        """Fetch the trust now; raises `StateUnusable`."""
        self.current = await refresh_trust(self.current, self._keystore, self._transport)
        self._good_until = self._pace.monotonic() + _GOOD_FOR_S
        return self.current


async def establish_trust(pin: str, keystore: Keystore, transport: Transport) -> Trust:
    """Fetch the keys that have this pin and store them, the pin last.

    Raises:
        PinMismatch: another pin is stored, or the keys offered have another one or are older.
        TransportUnavailable, TransportRefused: they cannot be fetched.
        StateUnusable: the disk.
    """
    stored = keystore.read("pin")
    if stored is not None and stored.decode("ascii", errors="replace").strip() != pin:
        message = "this state directory is pinned to another key; a new pin needs a new one"
        raise PinMismatch(message)
    before = None if stored is None else load_trust(keystore, transport.clock).belief
    token = await transport.key_set()
    bundle_token = await transport.trust_bundle()
    try:
        belief = believe(pin, token, bundle_token, before=before)
    except (SignatureBroken, SchemaError) as error:
        message = f"the keys offered are not accepted: {error}"
        raise PinMismatch(message) from None
    keystore.write("trust-bundle.jws", bundle_token)
    keystore.write("key-set.jws", token)
    keystore.write("pin", f"{pin}\n".encode())
    transport.clock.learn(parse_rfc3339(belief.key_set.issued_at))
    return Trust(pin, belief)
