"""A set of RSA keys as Google publishes it (RFC 7517), from a file; never from evidence."""

import base64
import binascii
from typing import Annotated, Any

from cryptography.hazmat.primitives.asymmetric import rsa
from pydantic import BaseModel, Field

MAX_KEYS = 32
MIN_BITS = 2048
MAX_BITS = 4096
EXPONENT = 65537

_PRIVATE = frozenset(("d", "p", "q", "dp", "dq", "qi", "oth", "k"))


class _KeySet(BaseModel):
    keys: Annotated[list[Any], Field(max_length=MAX_KEYS)]


def read_key_set(data: bytes) -> tuple[dict[str, rsa.RSAPublicKey], list[str]]:
    """Return the keys for RS256 by key id, and what is wrong with the others.

    Raises:
        ValueError: it is no key set.
    """
    listed = _KeySet.model_validate_json(data).keys
    keys: dict[str, rsa.RSAPublicKey] = {}
    twice: set[str] = set()
    faults: list[str] = []
    for number, jwk in enumerate(listed):
        try:
            kid, key = _key(jwk)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            faults.append(f"keys[{number}]: {error if type(error) is ValueError else 'not usable'}")
            continue
        if kid in keys:
            # Which one was meant is anybody's guess: neither.
            faults.append(f"keys[{number}]: its kid is there twice")
            twice.add(kid)
        keys[kid] = key
    return {kid: key for kid, key in keys.items() if kid not in twice}, faults


def _key(jwk: Any) -> tuple[str, rsa.RSAPublicKey]:  # noqa: ANN401 - any JSON
    if _PRIVATE & set(jwk):
        message = "it holds a private key"
        raise ValueError(message)
    if (
        jwk["kty"] != "RSA"
        or jwk.get("alg", "RS256") != "RS256"
        or jwk.get("use", "sig") != "sig"
        or "verify" not in jwk.get("key_ops", ("verify",))
    ):
        message = "it is not for RS256"
        raise ValueError(message)
    kid = jwk["kid"]
    if not isinstance(kid, str) or not kid:
        message = "it has no kid"
        raise ValueError(message)
    modulus, exponent = _number(jwk["n"]), _number(jwk["e"])
    if not MIN_BITS <= modulus.bit_length() <= MAX_BITS or exponent != EXPONENT:
        message = "its key is too weak or too costly"
        raise ValueError(message)
    return kid, rsa.RSAPublicNumbers(exponent, modulus).public_key()


def _number(text: Any) -> int:  # noqa: ANN401 - any JSON
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars="-_", validate=True)
    except binascii.Error:
        message = "a number is no base64url"
        raise ValueError(message) from None
    return int.from_bytes(data, "big")
