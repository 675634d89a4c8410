"""Is this an answer to what we sent last? Everything else is ignored, whoever sent it."""

from datetime import datetime
from hashlib import sha256

import structlog

from watchword.handlers.crypto.responses import read_response
from watchword.handlers.errors import SealBroken, SignatureBroken
from watchword.schemas.errors import SchemaError
from watchword.schemas.responses import JoinResponse
from watchword.streams.agent.exchange import Exchange, Round
from watchword.streams.agent.trust import Trust

_log = structlog.get_logger(__name__)


def read_answer(
    token: bytes, *, trust: Trust, exchange: Exchange, sent: Round, now: datetime | None = None
) -> JoinResponse | None:
    """Return the answer, or None if it is none to this round.

    It has to be signed by a key that is trusted `now` (see `Belief.key_for`), name the SHA-256 of the
    exact bytes sent last, and name our CSR. A `failed` may name no CSR: the service could not read the
    request that far. A challenge has to be for the attestor that was asked.
    """
    try:
        key = trust.key_for(token, now)
        response = read_response(token, key, None, sent.reply_private())
    except (SignatureBroken, SealBroken, SchemaError) as error:
        _log.warning("answer ignored", why=type(error).__name__)
        return None
    if why := _mismatch(response, exchange, sent):
        _log.warning("answer ignored", why=why)
        return None
    return response


def _mismatch(response: JoinResponse, exchange: Exchange, sent: Round) -> str | None:
    if response.request_sha256 != sha256(sent.request_bytes()).hexdigest():
        return "another request"
    unread = response.outcome == "failed" and response.csr_sha256 is None
    if response.csr_sha256 != exchange.csr_sha256.hex() and not unread:
        return "another CSR"
    deferred = response.deferred
    if deferred and deferred.type == "challenge" and deferred.attestor != sent.attestor:
        return "a challenge for another attestor"
    return None
