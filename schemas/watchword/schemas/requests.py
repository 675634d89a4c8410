"""What a machine asks: the request record on `join.requests`, and what is sealed inside it."""

import re
from hashlib import sha256
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from watchword.schemas.canonical import canonical, length_prefixed, parse_canonical, unb64
from watchword.schemas.errors import WrongShape
from watchword.schemas.ids import AttestorId, Role

MAX_REQUEST_BYTES = 512 * 1024
"""The greatest record on `join.requests`, in bytes; the topic and the gateway hold to the same."""

MAX_CSR_BYTES = 8 * 1024
"""The greatest CSR, DER, in bytes. RSA-8192 with a few names takes 2.5 KiB; 500 names do not fit."""

DEFAULT_ATTESTOR = AttestorId("join-token")
"""What an empty `attestor` means."""

RENEWAL_ATTESTOR = AttestorId("renew")
"""What `attestor` is in a request of kind `renew`: a reserved id, which no attestor can have."""

COMMAND_ATTESTOR = AttestorId("command")
"""The same in a request of kind `commands`."""

INFO_LABEL = b"watchword join v1"

ATTESTOR_ID = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
"""A DNS label (RFC 1123), at most 63 characters."""

ADDRESS_HEADER = "watchword-address"
"""The record header in which a gateway writes the address that a request came from. Unproven."""

_UUID7 = r"^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"

Kind = Literal["join", "renew", "commands"]


def _whole(value: object) -> object:
    """Let only an int pass: `1.0` and `true` equal 1, and would give one content several digests."""
    if type(value) is not int:
        message = "not an integer"
        raise ValueError(message)
    return value


class Wire(BaseModel):
    """A frozen, closed record whose names on the wire are camelCase."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, alias_generator=to_camel, populate_by_name=True
    )


class JoinRequest(Wire):
    """The request as it stands on the topic. All ten fields are always there.

    `csr` is DER (RFC 2986), `sealed` an HPKE ciphertext (RFC 9180, `enc` then `ct`), `state` what
    a challenge handed out, `reply_key` 32 bytes of X25519; all four in standard base64. Nothing
    in it is trusted before the CSR's signature and the seal have been checked.
    """

    version: Annotated[Literal[1], BeforeValidator(_whole)]
    kind: Kind
    request_id: Annotated[str, Field(pattern=_UUID7)]
    attestor: Annotated[str, Field(max_length=63, pattern=rf"^(?:{ATTESTOR_ID.pattern})?$")]
    role: Role
    csr: Annotated[str, Field(min_length=4, max_length=MAX_CSR_BYTES * 4 // 3 + 4)]
    encryption_key_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    sealed: Annotated[str, Field(min_length=4, max_length=MAX_REQUEST_BYTES)]
    state: Annotated[str, Field(min_length=4, max_length=128 * 1024)] | None
    reply_key: Annotated[str, Field(min_length=44, max_length=44)] | None

    @classmethod
    def read(cls, data: bytes) -> Self:
        """Return the request that these bytes canonically encode.

        Raises:
            NotCanonical: not JSON, not an object, or not its canonical form.
            WrongShape: a field is missing, unknown, of another type or out of bounds.
        """
        return cls.of(parse_canonical(data))

    @classmethod
    def of(cls, value: dict[str, Any]) -> Self:
        """Return the request of a parsed object; raises `WrongShape`."""
        if len(value) > len(cls.model_fields):
            # Before pydantic collects an error for each: 40,000 of them take half a second.
            message = "unknown fields"
            raise WrongShape(message)
        try:
            return cls.model_validate(value, by_alias=True, by_name=False)
        except ValidationError as error:
            # The message names fields only: an input value may be hostile or secret.
            fields = sorted(
                {str(e["loc"][0]) if e["loc"] else "?" for e in error.errors(include_input=False)}
            )
            raise WrongShape(", ".join(fields)[:200]) from None

    def write(self) -> bytes:
        """Return the canonical bytes, whose SHA-256 names the request everywhere."""
        return canonical(self.model_dump(by_alias=True))

    def resolved_attestor(self) -> AttestorId:
        """Return the attestor's id, with the default for an empty one."""
        return AttestorId(self.attestor) if self.attestor else DEFAULT_ATTESTOR

    def info(self, csr_sha256: bytes) -> bytes:
        """Return the HPKE `info` (RFC 9180, section 5.1) that binds the seal to all the rest.

        `csr_sha256` is the SHA-256 of the DER in `csr`. A relay that changes any field, or moves
        the seal to another request, makes another `info`, and the seal does not open.
        """
        return seal_info(
            version=self.version,
            kind=self.kind,
            request_id=self.request_id,
            attestor=self.resolved_attestor(),
            role=self.role,
            encryption_key_id=self.encryption_key_id,
            reply_key=b"" if self.reply_key is None else unb64(self.reply_key),
            state=None if self.state is None else unb64(self.state),
            csr_sha256=csr_sha256,
        )


def seal_info(  # noqa: PLR0913 - each is a field of the envelope
    *,
    version: int,
    kind: str,
    request_id: str,
    attestor: AttestorId,
    role: Role,
    encryption_key_id: str,
    reply_key: bytes,
    state: bytes | None,
    csr_sha256: bytes,
) -> bytes:
    """Return the HPKE `info` of a request; see `JoinRequest.info`. An absent state counts as empty."""
    return INFO_LABEL + length_prefixed(
        str(version).encode(),
        kind.encode(),
        request_id.encode(),
        attestor.encode(),
        role.encode(),
        encryption_key_id.encode(),
        reply_key,
        b"" if state is None else sha256(state).digest(),
        csr_sha256,
    )


class Claims(Wire):
    """What a machine says of itself. All of it is unproven: it may filter, and never admits."""

    product_uuid: Annotated[str, Field(max_length=64)] | None = None
    serial: Annotated[str, Field(max_length=128)] | None = None
    macs: Annotated[
        tuple[Annotated[str, Field(max_length=32)], ...], Field(max_length=64, strict=False)
    ] = ()
    hardware_key: Annotated[str, Field(max_length=256)] | None = None
    hostname: Annotated[str, Field(max_length=253)] | None = None

    @classmethod
    def read(cls, data: bytes) -> "Claims":
        """Return the claims of canonical JSON; empty bytes mean none. Raises `SchemaError`."""
        if not data:
            return _NOTHING_CLAIMED
        try:
            return cls.model_validate(parse_canonical(data), by_alias=True, by_name=False)
        except ValidationError:
            message = "claims"
            raise WrongShape(message) from None

    def write(self) -> bytes:
        """Return canonical JSON without what is not claimed; nothing claimed is no bytes."""
        said = self.model_dump(by_alias=True, exclude_defaults=True, mode="json")
        return canonical(said) if said else b""


_NOTHING_CLAIMED = Claims()
