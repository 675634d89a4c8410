"""The signed answers: made by a worker, read by an agent.

Every refusal has the same members, the same length and the same form of signature, whatever the
reason was: nothing about the reason ever comes here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from watchword.handlers.crypto.commands import sign_command
from watchword.handlers.crypto.documents import as_document
from watchword.handlers.crypto.hpke import DecryptionKey, seal
from watchword.handlers.crypto.jws import JwsSigner, verify
from watchword.handlers.errors import SealBroken
from watchword.schemas.canonical import b64, canonical, length_prefixed, parse_canonical, unb64
from watchword.schemas.commands import Command
from watchword.schemas.errors import WrongShape
from watchword.schemas.ids import Role
from watchword.schemas.responses import (
    PAD_TO,
    REFUSED_CODE,
    REFUSED_MESSAGE,
    RESPONSE_INFO_LABEL,
    TYP_RESPONSE,
    Deferred,
    Failure,
    JoinResponse,
    SealedResponse,
)
from watchword.schemas.times import rfc3339

_LENGTH_BYTES = 4
_REFUSED = {"code": REFUSED_CODE, "message": REFUSED_MESSAGE}


@dataclass(frozen=True, slots=True)
class Question:
    """The request that an answer is for, as far as it could be read."""

    request_sha256: bytes
    """SHA-256 of the exact bytes of the request."""
    request_id: str | None = None
    csr_sha256: bytes | None = None
    reply_key: bytes | None = None
    """32 bytes that `hpke.check_public` took: then the answer is sealed to them."""


class Answers:
    """Makes the bytes of `join.responses`.

    Every method returns a signed JWS, in clear or, for a question with a reply key, sealed; and
    raises `SealBroken` for a reply key that nothing can be sealed to.
    """

    def __init__(self, jws: JwsSigner) -> None:
        """Take the signing key."""
        self._jws = jws

    def sign_with(self, jws: JwsSigner) -> None:
        """Sign with this key from now on."""
        self._jws = jws

    def joined(  # noqa: PLR0913 - each is a member of the answer
        self,
        question: Question,
        issued_at: datetime,
        *,
        node_id: str,
        tenant: str,
        pool: str,
        site: str | None,
        role: Role,
        chain: Sequence[bytes],
        allowed_kinds: Sequence[str] | None,
        renew_after: datetime,
    ) -> bytes:
        """Return the answer that the machine is a node; `chain` is DER, leaf first, without the root."""
        content = {
            "allowedKinds": None if allowed_kinds is None else list(allowed_kinds),
            "chain": [b64(certificate) for certificate in chain],
            "nodeId": node_id,
            "pool": pool,
            "renewAfter": rfc3339(renew_after),
            "role": role,
            "site": site,
            "tenant": tenant,
        }
        return self._answer(question, issued_at, "joined", content)

    def approval(
        self, question: Question, issued_at: datetime, *, retry_after_seconds: int
    ) -> bytes:
        """Return the answer that an operator has to agree first."""
        content = {"retryAfterSeconds": retry_after_seconds, "type": "approval"}
        return self._answer(question, issued_at, "deferred", content)

    def challenge(
        self,
        question: Question,
        issued_at: datetime,
        *,
        attestor: str,
        challenge: bytes,
        state: bytes,
        not_after: datetime,
    ) -> bytes:
        """Return the answer that the machine has to answer `challenge` and send `state` back."""
        content = {
            "attestor": attestor,
            "challenge": b64(challenge),
            "notAfter": rfc3339(not_after),
            "state": b64(state),
            "type": "challenge",
        }
        return self._answer(question, issued_at, "deferred", content)

    def commands(
        self,
        question: Question,
        issued_at: datetime,
        items: Sequence[Command],
        *,
        more: bool,
    ) -> bytes:
        """Return the answer that has a node's commands, each signed by itself; never in clear.

        Raises:
            SealBroken: there is no key to seal it to.
        """
        if question.reply_key is None:
            raise SealBroken
        signed = [sign_command(self._jws, command).decode() for command in items]
        return self._answer(question, issued_at, "commands", {"items": signed, "more": more})

    def refused(self, question: Question, issued_at: datetime) -> bytes:
        """Return the one answer to everyone who stays out."""
        return self._answer(question, issued_at, "refused", _REFUSED)

    def failed(self, question: Question, issued_at: datetime, code: Failure) -> bytes:
        """Return the answer that the request was not judged."""
        return self._answer(question, issued_at, "failed", {"code": code})

    def _answer(
        self, question: Question, issued_at: datetime, outcome: str, content: dict[str, Any]
    ) -> bytes:
        digest = question.request_sha256.hex()
        at = rfc3339(issued_at)
        csr = question.csr_sha256
        # A dictionary and not the model: a test holds the two against each other, and this is
        # the hot path.
        payload = canonical(
            {
                "csrSha256": None if csr is None else csr.hex(),
                "issuedAt": at,
                "outcome": outcome,
                "requestId": question.request_id,
                "requestSha256": digest,
                outcome: content,
            }
        )
        if question.reply_key is not None:
            sealed = seal(question.reply_key, _padded(payload), _info(question.request_sha256))
            payload = canonical({"issuedAt": at, "requestSha256": digest, "sealed": b64(sealed)})
        return self._jws.sign(payload, TYP_RESPONSE)


def read_response(
    token: bytes, signing_public: bytes, kid: str | None, reply_private: bytes | None
) -> JoinResponse:
    """Return what a signed answer says.

    `signing_public` and `reply_private` are 32 raw bytes (Ed25519, X25519). The caller still has to
    compare `request_sha256` with the digest of the bytes it sent last, and `csr_sha256` with its own
    CSR: an authentic answer to another request is none to this one.

    Raises:
        SignatureBroken: not signed by that key as a response.
        SealBroken: sealed to another key than the reply key, or there is none.
        SchemaError: authentic, but no response that this release knows.
    """
    # 1. The signature of the pinned key, under the type of responses.
    # 2. A sealed answer opens under the digest that stands in clear beside it.
    # 3. The payload is canonical and has the shape of a response.
    # 4. It has the one member that its outcome names, and no other; a deferral says all that it
    #    must.
    # 5. A sealed answer speaks of the request in clear and of no other.

    # Step 1
    value = parse_canonical(verify(token, signing_public, typ=TYP_RESPONSE, kid=kid))

    # Step 2
    outer: SealedResponse | None = None
    if "sealed" in value:
        outer = as_document(SealedResponse, value)
        if reply_private is None:
            raise SealBroken
        info = _info(bytes.fromhex(outer.request_sha256))
        value = parse_canonical(
            _unpadded(DecryptionKey(reply_private).open(unb64(outer.sealed), info))
        )

    # Step 3
    response = as_document(JoinResponse, value)

    # Step 4
    outcomes = value.keys() & {"joined", "deferred", "refused", "failed", "commands"}
    if outcomes != {response.outcome} or value[response.outcome] is None:
        message = "outcome"
        raise WrongShape(message)

    if response.deferred is not None and not _is_complete(response.deferred):
        message = "deferred"
        raise WrongShape(message)

    # Step 5
    if outer is not None and outer.request_sha256 != response.request_sha256:
        message = "requestSha256"
        raise WrongShape(message)
    return response


def _is_complete(deferred: Deferred) -> bool:
    if deferred.type == "approval":
        return deferred.retry_after_seconds is not None
    needed = (deferred.attestor, deferred.challenge, deferred.state, deferred.not_after)
    return None not in needed


def _info(request_sha256: bytes) -> bytes:
    return RESPONSE_INFO_LABEL + length_prefixed(request_sha256)


def _padded(payload: bytes) -> bytes:
    data = len(payload).to_bytes(_LENGTH_BYTES, "big") + payload
    return data + bytes(-len(data) % PAD_TO)


def _unpadded(data: bytes) -> bytes:
    """Return what `_padded` padded; only its own spelling is taken."""
    payload = data[_LENGTH_BYTES : _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "big")]
    if _padded(payload) != data:
        message = "padding"
        raise WrongShape(message)
    return payload
