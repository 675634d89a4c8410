"""What a site's agent says of a machine that it has seen boot, signed with the site's key.

The evidence is the assertion itself: a JWS in compact form (Ed25519, `typ` is `watchword-discovery`,
`kid` names the site's key) over the canonical JSON of `Assertion`. It is bound to the machine's CSR,
so it may travel in the open; each is good once.
"""

import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from watchword.handlers.crypto.documents import as_document
from watchword.handlers.crypto.jws import JwsSigner
from watchword.handlers.errors import BadArgument
from watchword.handlers.hardware_ids import canonical_mac, canonical_uuid
from watchword.schemas.canonical import canonical, parse_canonical
from watchword.schemas.errors import SchemaError, WrongShape
from watchword.schemas.requests import Wire
from watchword.schemas.times import rfc3339

TYP = "watchword-discovery"
MAX_ASSERTION_BYTES = 4096
MAX_LIFE = timedelta(minutes=15)
"""The longest time that an assertion may be good for."""

LEEWAY = timedelta(minutes=1)
"""By how much the site's clock may be behind ours."""

_MAX_MACS = 16
_NONCE_BYTES = 32
_HEX_32 = r"^[0-9a-f]{64}$"


class Assertion(Wire):
    """Who the machine is, as its site's agent saw it. MACs and UUID are in their one spelling, MACs in order."""

    version: Literal[1]
    site: Annotated[str, Field(pattern=r"^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$")]
    csr_sha256: Annotated[str, Field(pattern=_HEX_32)]
    macs: Annotated[
        tuple[Annotated[str, Field(pattern=r"^[0-9a-f]{12}$")], ...],
        Field(max_length=_MAX_MACS, strict=False),
    ]
    product_uuid: Annotated[str, Field(pattern=r"^[0-9a-f-]{36}$")] | None
    bmc: Annotated[str, Field(pattern=r"^[A-Za-z0-9.:_-]{1,64}$")] | None
    nonce: Annotated[str, Field(pattern=_HEX_32)]
    expires_at: Annotated[
        str,
        Field(
            pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z$",
            max_length=24,
        ),
    ]

    @property
    def expiry(self) -> datetime:
        """When it stops being good; raises `ValueError` for a day that there is not."""
        # The pattern has left one form, which this reads thirty times faster than `strptime`.
        return datetime.fromisoformat(self.expires_at)


def read_assertion(payload: bytes) -> Assertion:
    """Return the assertion that these bytes canonically encode.

    Raises:
        SchemaError: anything else, names in another spelling or order included: one content has one form.
    """
    said = parse_canonical(payload)
    if type(said.get("version")) is not int:
        message = "version"  # `true` and `1.0` equal 1
        raise WrongShape(message)
    found = as_document(Assertion, said)
    try:
        _ = found.expiry
    except ValueError:
        message = "expiresAt"
        raise WrongShape(message) from None
    if list(found.macs) != sorted(set(found.macs)):
        message = "macs"
        raise WrongShape(message)
    if found.product_uuid is not None and canonical_uuid(found.product_uuid) != found.product_uuid:
        message = "productUuid"
        raise WrongShape(message)
    return found


def kid_of(public_key: bytes) -> str:
    """Return the name that a key has of itself: 16 hex digits of its SHA-256."""
    return sha256(public_key).hexdigest()[:16]


def sign_assertion(
    key: JwsSigner,
    *,
    site: str,
    csr_sha256: bytes,
    macs: Sequence[str],
    expires_at: datetime,
    product_uuid: str | None = None,
    bmc: str | None = None,
) -> bytes:
    """Return the signed assertion: the site agent's half. `key.kid` is the id of the site's key.

    MACs and product UUID may be in any spelling; `bmc` is the name or address of the machine's
    management controller. The nonce is made here: 256 random bits.

    Raises:
        BadArgument: a name is none, or a field is beyond its bounds.
    """
    if len(csr_sha256) != _NONCE_BYTES:
        message = "the CSR is named by its SHA-256: 32 bytes"
        raise BadArgument(message)
    assertion = {
        "version": 1,
        "site": site,
        "csrSha256": csr_sha256.hex(),
        "macs": sorted({_mac(mac) for mac in macs}),
        "productUuid": None if product_uuid is None else _uuid(product_uuid),
        "bmc": bmc,
        "nonce": secrets.token_hex(_NONCE_BYTES),
        "expiresAt": rfc3339(expires_at),
    }
    try:
        payload = canonical(assertion)
        read_assertion(payload)
    except (SchemaError, ValidationError):
        message = (
            f"a site's name, a controller's address, or the number of MACs (at most {_MAX_MACS})"
            " cannot be asserted"
        )
        raise BadArgument(message) from None
    return key.sign(payload, TYP)


def _mac(text: str) -> str:
    mac = canonical_mac(text)
    if mac is None:
        message = f"this is no MAC address: {text[:32]!r}"
        raise BadArgument(message)
    return mac


def _uuid(text: str) -> str:
    uuid = canonical_uuid(text)
    if uuid is None:
        message = f"this is no product UUID: {text[:64]!r}"
        raise BadArgument(message)
    return uuid
