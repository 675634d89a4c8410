"""What a machine is told: the payload of the signed response on `join.responses`.

The record's value is a JWS in compact form (RFC 7515) over one of two payloads: `JoinResponse`
in clear, or `SealedResponse` when the request carried a reply key.
"""

from typing import Annotated, Literal

from pydantic import Field

from watchword.schemas.ids import Role
from watchword.schemas.requests import Wire

Sha256Hex = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Instant = Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")]
"""RFC 3339 in UTC with milliseconds."""

Failure = Literal["UNSUPPORTED", "INVALID_INPUT", "UNAVAILABLE"]

REFUSED_CODE: Literal["ACCESS_DENIED"] = "ACCESS_DENIED"
REFUSED_MESSAGE: Literal["Join refused"] = "Join refused"


class Joined(Wire):
    """The machine is a node now. `chain` is DER in base64, leaf first, without the root."""

    node_id: str
    tenant: str
    pool: str
    site: str | None
    role: Role
    chain: Annotated[tuple[str, ...], Field(strict=False)]
    allowed_kinds: Annotated[tuple[str, ...], Field(strict=False)] | None
    """Kinds of commands the node takes; None is unrestricted, empty is none at all."""
    renew_after: Instant


class Deferred(Wire):
    """Not yet: wait for an operator, or answer a challenge. Never a join."""

    type: Literal["approval", "challenge"]
    retry_after_seconds: int | None = None
    """For `approval`: a constant of the deployment."""
    attestor: str | None = None
    challenge: str | None = None
    """For `challenge`: the attestor's bytes, base64."""
    state: str | None = None
    """For `challenge`: to be sent back as it is, base64."""
    not_after: Instant | None = None


class Refused(Wire):
    """The machine stays out, and is not told why."""

    code: Literal["ACCESS_DENIED"] = REFUSED_CODE
    message: Literal["Join refused"] = REFUSED_MESSAGE


class Failed(Wire):
    """Not judged: the request is not usable, or the service cannot judge it now."""

    code: Failure


class Commands(Wire):
    """What the node is to do. `items` are commands, each signed by itself, in the order in which they were given."""

    items: Annotated[tuple[str, ...], Field(strict=False)]
    more: bool
    """Whether there are more: the node asks again at once."""


class JoinResponse(Wire):
    """The answer to one request, by the SHA-256 of its exact bytes."""

    request_sha256: Sha256Hex
    request_id: str | None
    """None if the request could not be read that far."""
    csr_sha256: Sha256Hex | None
    issued_at: Instant
    outcome: Literal["joined", "deferred", "refused", "failed", "commands"]
    joined: Joined | None = None
    deferred: Deferred | None = None
    refused: Refused | None = None
    failed: Failed | None = None
    commands: Commands | None = None
    """In answers to requests of kind `commands`, which are always sealed."""


class SealedResponse(Wire):
    """The answer for the holder of the reply key alone.

    `sealed` is HPKE base mode to the reply key, `info` = `watchword response v1` and the
    length-prefixed request digest; the plaintext is a `JoinResponse` behind its length (four
    bytes, big endian), padded with zeros to a multiple of 512 bytes.
    """

    request_sha256: Sha256Hex
    issued_at: Instant
    sealed: str


RESPONSE_INFO_LABEL = b"watchword response v1"
PAD_TO = 512

TYP_RESPONSE = "watchword-response"
TYP_KEY_SET = "watchword-key-set"
TYP_KEY_ENDORSEMENT = "watchword-key-endorsement"
TYP_COMMAND = "watchword-command"
