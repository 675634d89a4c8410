"""Google: the identity token of an instance in its full format, a JWT signed with RS256.

The audience carries the SHA-256 of the CSR, so that the token is about this very key; the other two
clouds have nothing like it.
"""

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256

from watchword.handlers.attestors.cloud_iid.binding import bound_audience
from watchword.handlers.attestors.cloud_iid.config import GcpConfig
from watchword.handlers.attestors.cloud_iid.document import Identity, is_object, read_document
from watchword.handlers.attestors.cloud_iid.reasons import Unproven
from watchword.schemas.canonical import b64url

MAX_TOKEN_BYTES = 8 * 1024
MAX_HEADER_BYTES = 512

_PARTS = 3
_HEADER = frozenset(("alg", "kid", "typ"))
_MAX_TIME = 2**40
_PROJECT = re.compile(r"(?:[a-z0-9.-]{1,63}:)?[a-z][a-z0-9-]{4,28}[a-z0-9]")
_INSTANCE = re.compile(r"[0-9]{1,20}")
_ZONE = re.compile(r"([a-z]{2,16}-[a-z]{2,16}[0-9]{1,2})-[a-z][a-z0-9]{0,8}")
"""A zone, such as `us-central1-c`; what is before its last hyphen is the region."""


def audience_for(config: GcpConfig, csr_sha256: bytes) -> str:
    """Return the audience that a machine has to ask its metadata service for."""
    return bound_audience(config.audience, csr_sha256)


def prove(
    token: bytes,
    keys: Mapping[str, rsa.RSAPublicKey],
    config: GcpConfig,
    audience: str,
    now: datetime,
    *,
    used: Callable[[str], None] | None = None,
) -> Identity:
    """Return the instance that Google signed, for this audience, now; `used` is told the id of the key that did.

    Raises:
        Unproven: see `REASONS`.
    """
    # 1. The signature, by a key of ours that the header may name and nothing more.
    # 2. Issuer and audience, each one text and exactly ours.
    # 3. Times: not from the future, not over, and no longer than Google gives them.
    # 4. The instance: tokens without it are service accounts' and prove no machine.

    # Step 1
    kid, payload = verify_token(token, keys)
    if used is not None:
        used(kid)
    claims = read_document(payload, "token")

    # Step 2
    if claims.get("iss") != config.issuer:
        raise Unproven("issuer")
    if claims.get("aud") != audience:
        raise Unproven("audience")

    # Step 3
    _check_times(claims, config, now)

    # Step 4
    google = claims.get("google")
    engine = google.get("compute_engine") if is_object(google) else None
    if not is_object(engine):
        raise Unproven("no-instance-claims")
    return _identity(engine)


def verify_token(token: bytes, keys: Mapping[str, rsa.RSAPublicKey]) -> tuple[str, bytes]:
    """Return key id and payload of a compact JWS that one of these keys signed with RS256.

    The header may have `alg`, `kid` and `typ`: no `jwk`, `jku`, `x5c`, `x5u`, `crit` or anything else.

    Raises:
        Unproven: `token`, `token-header`, `token-key` or `signature`.
    """
    parts = token.split(b".") if len(token) <= MAX_TOKEN_BYTES else []
    if len(parts) != _PARTS or len(parts[0]) > MAX_HEADER_BYTES:
        raise Unproven("token")
    encoded_header, payload, signature = (_decoded(part) for part in parts)
    header = read_document(encoded_header, "token")
    if (
        not header.keys() <= _HEADER
        or header.get("alg") != "RS256"
        or header.get("typ", "JWT") != "JWT"
    ):
        raise Unproven("token-header")
    kid = header.get("kid")
    key = keys.get(kid) if isinstance(kid, str) else None
    if key is None or not isinstance(kid, str):
        raise Unproven("token-key")
    try:
        key.verify(signature, token[: token.rindex(b".")], padding.PKCS1v15(), SHA256())
    except (InvalidSignature, ValueError):
        raise Unproven("signature") from None
    return kid, payload


def _check_times(claims: dict[str, Any], config: GcpConfig, now: datetime) -> None:
    issued, expires = _time(claims, "iat"), _time(claims, "exp")
    begins = _time(claims, "nbf") if "nbf" in claims else issued
    if max(issued, begins) > now + config.leeway:
        raise Unproven("not-yet")
    if now - config.leeway >= expires:  # in this order: the token's times may be at the end of time
        raise Unproven("stale")
    if not timedelta(0) < expires - issued <= config.max_life:
        raise Unproven("lifetime")


def _time(claims: dict[str, Any], name: str) -> datetime:
    value = claims.get(name)
    if type(value) is not int or not 0 <= value < _MAX_TIME:  # `True` is an int as well
        raise Unproven("token")
    try:
        return datetime.fromtimestamp(value, UTC)
    except (ValueError, OverflowError, OSError):
        raise Unproven("token") from None


def _identity(engine: dict[str, Any]) -> Identity:
    project, instance, zone = (engine.get(name) for name in ("project_id", "instance_id", "zone"))
    if not (
        isinstance(project, str)
        and isinstance(instance, str)
        and isinstance(zone, str)
        and _PROJECT.fullmatch(project)
        and _INSTANCE.fullmatch(instance)
    ):
        raise Unproven("document")
    found = _ZONE.fullmatch(zone)
    if found is None:
        raise Unproven("document")
    return Identity(provider="gcp", account=project, instance=instance, region=found[1])


def _decoded(part: bytes) -> bytes:
    """Return the bytes of base64url in its one spelling (RFC 7515, 2)."""
    try:
        data = base64.b64decode(part + b"=" * (-len(part) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise Unproven("token") from None
    if b64url(data) != part:
        raise Unproven("token")
    return data
