"""Making a round: fresh evidence, sealed freshly, under a new request id."""

import uuid_utils

from watchword.handlers.crypto import hpke
from watchword.handlers.crypto.keysets import choose_encryption_key
from watchword.handlers.crypto.sealing import UNSEALED, seal_evidence
from watchword.handlers.errors import Unavailable
from watchword.schemas.canonical import b64, unb64
from watchword.schemas.ids import Role
from watchword.schemas.keyset import EncryptionKey, KeySet
from watchword.schemas.requests import MAX_REQUEST_BYTES, Claims, JoinRequest, Kind
from watchword.schemas.responses import Deferred
from watchword.streams.agent.clock import AgentClock
from watchword.streams.agent.errors import RequestNotUsable
from watchword.streams.agent.exchange import Exchange, Round, encoded


def choose_key(key_set: KeySet, clock: AgentClock) -> EncryptionKey:
    """Return the key to seal to: the newest that may be used now, if the machine knows the time.

    A machine that does not know it takes the key that ends last. Every key in the set is signed,
    workers hold each of them before it is published and open it before its `not_before` too, and of
    all of them that one is still held the longest: the choice can be wrong only by being early.
    """
    if not clock.is_guess:
        try:
            return choose_encryption_key(key_set, clock.now())
        except Unavailable:
            # The clock is ahead, or the set is old and there is no newer one: one key may still do.
            pass
    return max(key_set.encryption, key=lambda key: (key.not_after, key.not_before))


def new_request_id() -> str:
    """Return a fresh id: a UUIDv7."""
    return str(uuid_utils.uuid7())


def make_round(  # noqa: PLR0913 - each is a part of the request
    exchange: Exchange,
    *,
    attestor: str,
    role: Role,
    payload: bytes,
    claims: Claims,
    key: EncryptionKey,
    challenge: Deferred | None = None,
    has_reply_key: bool = False,
    kind: Kind = "join",
    request_id: str | None = None,
) -> Round:
    """Return a new round; it is not on the disk yet.

    `payload` is the prover's evidence, or its answer to `challenge`; one that names the request it is
    for brings the `request_id` along. With `has_reply_key` the answer
    comes sealed to a one-time key that stands in the round.

    Raises:
        RequestNotUsable: the evidence is too large for the wire.
    """
    reply = hpke.generate() if has_reply_key else None
    state = None if challenge is None else challenge.state
    request_id = request_id or new_request_id()
    unsealed = JoinRequest(
        version=1,
        kind=kind,
        request_id=request_id,
        attestor=attestor,
        role=role,
        csr=b64(exchange.csr_der),
        encryption_key_id=key.kid,
        sealed=UNSEALED,
        state=state,
        reply_key=encoded(None if reply is None else reply.public),
    )
    request = seal_evidence(
        unsealed, unb64(key.public), payload, claims, csr_sha256=exchange.csr_sha256
    ).write()
    if len(request) > MAX_REQUEST_BYTES:
        raise RequestNotUsable(_TOO_LARGE)
    return Round(
        attestor=attestor,
        role=role,
        request=b64(request),
        encryption_key_id=key.kid,
        reply_key=encoded(None if reply is None else reply.private_bytes()),
        challenge_not_after=None if challenge is None else challenge.not_after,
    )


_TOO_LARGE = f"the evidence does not fit into a request of {MAX_REQUEST_BYTES} bytes"
