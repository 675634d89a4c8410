"""Sealing what a machine shows into its request: the one way in which it is done."""

from hashlib import sha256
from typing import Final

from watchword.handlers.crypto import hpke
from watchword.schemas.canonical import b64, length_prefixed, unb64
from watchword.schemas.requests import Claims, JoinRequest

UNSEALED: Final = "AAAA"
"""What stands in `sealed` of a request that is not sealed yet."""


def seal_evidence(
    request: JoinRequest,
    public: bytes,
    payload: bytes,
    claims: Claims | bytes = b"",
    *,
    csr_sha256: bytes | None = None,
) -> JoinRequest:
    """Return the request with its evidence sealed, bound to all the rest of it by `JoinRequest.info`.

    Args:
        request: All but `sealed`, which is replaced; `encryption_key_id` names the key.
        public: That key: 32 bytes of X25519.
        payload: The evidence, in the attestor's own form.
        claims: What the machine says of itself, perhaps encoded already.
        csr_sha256: The SHA-256 of the CSR's DER, where it is known; else it is made here.
    """
    encoded = claims if isinstance(claims, bytes) else claims.write()
    digest = sha256(unb64(request.csr)).digest() if csr_sha256 is None else csr_sha256
    sealed = hpke.seal(public, length_prefixed(payload, encoded), request.info(digest))
    return request.model_copy(update={"sealed": b64(sealed)})
