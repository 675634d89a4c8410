"""A node's key that is in the TPM: its public half, and the file by which its TPM knows the other.

The file is a `TSS2 PRIVATE KEY` (tpm2-openssl and tpm2-tss-engine read it too): the object identifier of a
loadable key, how it is authorised, the handle of its parent, TPM2B_PUBLIC and TPM2B_PRIVATE. Without that TPM
it is worth nothing.
"""

import re
from base64 import b64decode
from binascii import Error as NotBase64
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric import ec

from watchword.handlers.attestors.tpm.reader import Malformed
from watchword.handlers.attestors.tpm.structures import read_public_2b
from watchword.handlers.crypto import der
from watchword.handlers.errors import InvalidInput

_PEM = re.compile(
    rb"-----BEGIN TSS2 PRIVATE KEY-----(.*?)-----END TSS2 PRIVATE KEY-----", re.DOTALL
)
_OID, _CONTEXT_0 = 0x06, 0xA0


@dataclass(frozen=True, slots=True)
class TpmKey:
    """A key in a TPM, as far as it can be known without it."""

    pem: bytes = field(repr=False)
    public: ec.EllipticCurvePublicKey

    def public_key(self) -> ec.EllipticCurvePublicKey:
        """Return the public half, as a key in software would."""
        return self.public


def is_in_tpm(pem: bytes) -> bool:
    """Tell whether a key's file names a key in a TPM."""
    return _PEM.search(pem) is not None


def read_tpm_key(pem: bytes) -> TpmKey:
    """Return the key that a `TSS2 PRIVATE KEY` names.

    Raises:
        ValueError: it is none, or not of an elliptic curve.
    """
    found = _PEM.search(pem)
    try:
        data = b64decode(b"".join(found[1].split()), validate=True) if found else b""
        at, _ = der.read(data, 0, der.SEQUENCE)
        _, at = der.read(data, at, _OID)
        if data[at] == _CONTEXT_0:
            _, at = der.read(data, at, _CONTEXT_0)
        _, at = der.read(data, at, der.INTEGER)
        start, end = der.read(data, at, der.OCTET_STRING)
        key = read_public_2b(data[start:end]).key
    except (NotBase64, IndexError, Malformed, InvalidInput) as error:
        raise ValueError(type(error).__name__) from None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        message = "a key of another kind"
        raise ValueError(message)  # noqa: TRY004 - it is a file's content that is wrong
    return TpmKey(pem, key)
