"""A token's `expect` against a machine's claims: it narrows, and never admits."""

from collections.abc import Mapping

from watchword.handlers.hardware_ids import canonical_mac
from watchword.schemas.requests import Claims

EXPECTABLE = frozenset(("productUuid", "serial", "mac", "hardwareKey", "node"))
"""What `expect` may name; `node` is the node that the token re-keys."""


def meets(expect: Mapping[str, str], claims: Claims) -> bool:
    """Tell whether every expectation is met. An unknown one is not: fails closed."""
    return all(_met(name, wanted, claims) for name, wanted in expect.items())


def _met(name: str, wanted: str, claims: Claims) -> bool:
    match name:
        case "productUuid":
            return claims.product_uuid is not None and claims.product_uuid.lower() == wanted.lower()
        case "serial":
            return claims.serial == wanted
        case "mac":
            mac = canonical_mac(wanted)
            return mac is not None and mac in {canonical_mac(claimed) for claimed in claims.macs}
        case "hardwareKey":
            return claims.hardware_key == wanted
        case "node":
            return True  # which node is re-keyed is settled by `reclaim`
        case _:
            return False
