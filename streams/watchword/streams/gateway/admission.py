"""Which bodies may go to Kafka: those that a worker could judge.

No secret is needed for that, so junk ends here. What is checked is public: the canonical form,
the key policy, and that the CSR is signed by its own key. All of it runs on the event loop:
measured, the worst body of 512 KiB that is well formed takes 5 ms, a usual one 0.2 ms, and what
would take longer (0.1 to 0.5 s for 40,000 unknown fields) is turned away before the JSON is parsed.
"""

from dataclasses import dataclass
from hashlib import sha256

from watchword.handlers.crypto.csr import check_possession, load_csr
from watchword.handlers.errors import InvalidInput
from watchword.schemas.canonical import unb64
from watchword.schemas.errors import SchemaError
from watchword.schemas.requests import JoinRequest
from watchword.streams.gateway.problems import Problem, Rejected

_FIELDS = len(JoinRequest.model_fields)

_OF_CSR = {
    "csr-malformed": Problem.CSR_MALFORMED,
    "csr-signature": Problem.CSR_SIGNATURE,
    "weak-key": Problem.WEAK_KEY,
}


@dataclass(frozen=True, slots=True)
class Admitted:
    """A body that may go to Kafka, unchanged."""

    body: bytes
    digest: bytes
    """SHA-256 of `body`, 32 bytes."""
    csr_sha256: bytes
    """SHA-256 of the CSR's DER, 32 bytes: the record's key."""
    request_id: str
    """A UUID, by which every log names the request. It polls nothing: the digest does."""


def admit(body: bytes) -> Admitted:
    """Return the body with its digests, if a worker could judge it.

    Raises:
        Rejected: `UNDECODABLE`, `CSR_MALFORMED`, `WEAK_KEY` or `CSR_SIGNATURE`.
    """
    # 1. The body is as flat as a request is: counted, before anything is parsed.
    # 2. It is the canonical form of a request (RFC 8785), every field within its bounds.
    # 3. What is base64 in it is the one canonical spelling.
    # 4. The CSR is well formed, its key good enough, and signed by that key.

    # Step 1
    if not _is_flat(body):
        raise Rejected(Problem.UNDECODABLE)

    try:
        # Step 2
        request = JoinRequest.read(body)

        # Step 3
        csr_der = unb64(request.csr)
        for text in (request.sealed, request.state, request.reply_key):
            if text is not None:
                unb64(text)
    except SchemaError:
        raise Rejected(Problem.UNDECODABLE) from None

    # Step 4
    try:
        csr = load_csr(csr_der)
        check_possession(csr)
    except InvalidInput as error:
        raise Rejected(_OF_CSR.get(error.reason, Problem.UNDECODABLE)) from None

    return Admitted(body, sha256(body).digest(), csr.sha256, request.request_id)


def _is_flat(body: bytes) -> bool:
    """Tell whether this can be one object of as many fields as a request has, with none inside.

    Values of a request are base64, identifiers, null and one integer: none has a brace, bracket,
    colon, comma or backslash. So a count of those bounds what the parser can be made to do.
    """
    return (
        body.count(b"{") == 1
        and body.count(b":") == _FIELDS
        and body.count(b",") == _FIELDS - 1
        and b"[" not in body
        and b"\\" not in body
    )
