"""What the agent believes: one pinned signing key, and the documents that it has signed.

Everything is read again from the pin each time: a key set on the disk is worth no more than one from
the network. A document older than the one stored is refused, whoever brings it, because the private
keys of an old set may be known by now.
"""

from dataclasses import dataclass, replace

import structlog
from cryptography import x509

from watchword.handlers.crypto.endorsements import pin_of
from watchword.handlers.crypto.keysets import bootstrap_key_set, read_key_set, read_trust_bundle
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
    """The pinned key, and the newest documents that it signed."""

    pin: str
    key_set: KeySet
    bundle: TrustBundle | None

    @property
    def signing_public(self) -> bytes:
        """32 raw bytes of Ed25519, which have the pin."""
        return unb64(self.key_set.signing.public)

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
        key_set = bootstrap_key_set(token, pin)
        public = unb64(key_set.signing.public)
        bundle = None if bundle_token is None else read_trust_bundle(bundle_token, public)
    except (SignatureBroken, SchemaError, UnicodeDecodeError) as error:
        message = (
            f"{keystore.directory}: the stored keys do not hold ({type(error).__name__});"
            " remove pin, key-set.jws and trust-bundle.jws and bootstrap again"
        )
        raise StateUnusable(message) from None
    clock.learn(parse_rfc3339(key_set.issued_at))
    return Trust(pin, key_set, bundle)


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
        key_set = read_key_set(token, trust.signing_public, minimum_version=trust.key_set.version)
        bundle = read_trust_bundle(
            bundle_token,
            trust.signing_public,
            minimum_version=1 if trust.bundle is None else trust.bundle.version,
        )
    except (SignatureBroken, SchemaError) as error:
        _log.warning("published keys are not acceptable", error=str(error))
        return trust
    if key_set != trust.key_set:
        keystore.write("key-set.jws", token)
    if bundle != trust.bundle:
        keystore.write("trust-bundle.jws", bundle_token)
    transport.clock.learn(parse_rfc3339(key_set.issued_at))
    return replace(trust, key_set=key_set, bundle=bundle)


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
    minimum = 1 if stored is None else load_trust(keystore, transport.clock).key_set.version
    token = await transport.key_set()
    bundle_token = await transport.trust_bundle()
    try:
        key_set = bootstrap_key_set(token, pin, minimum_version=minimum)
        bundle = read_trust_bundle(bundle_token, unb64(key_set.signing.public))
    except (SignatureBroken, SchemaError) as error:
        message = f"the keys offered are not accepted: {error}"
        raise PinMismatch(message) from None
    keystore.write("trust-bundle.jws", bundle_token)
    keystore.write("key-set.jws", token)
    keystore.write("pin", f"{pin}\n".encode())
    transport.clock.learn(parse_rfc3339(key_set.issued_at))
    return Trust(pin_of(unb64(key_set.signing.public)), key_set, bundle)
