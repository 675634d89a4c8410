"""Which keys of a TPM may play which part, by their public areas."""

from cryptography.hazmat.primitives.asymmetric import ec

from watchword.handlers.attestors.tpm.algorithms import HASHES, Alg
from watchword.handlers.attestors.tpm.reader import Malformed
from watchword.handlers.attestors.tpm.structures import Attributes, Public

_OF_THE_TPM = Attributes.FIXED_TPM | Attributes.FIXED_PARENT | Attributes.SENSITIVE_DATA_ORIGIN
"""Made inside, by its random numbers, and never to leave (Part 1, 25)."""
_STORAGE = _OF_THE_TPM | Attributes.RESTRICTED | Attributes.DECRYPT
_ATTESTATION = _OF_THE_TPM | Attributes.RESTRICTED | Attributes.SIGN
_SIGNING = _OF_THE_TPM | Attributes.SIGN
_AES_BITS = (128, 256)


class UnfitKey(Malformed):
    """A public area is well formed, and not of a key that may play this part."""


def check_ek(ek: Public) -> None:
    """Return only for an endorsement key that a credential can be made for (Part 1, 24).

    A restricted decryption key lets nobody read what it decrypts unless it is about a key in its own TPM.

    Raises:
        UnfitKey: it is none.
    """
    symmetric = ek.symmetric
    if (
        not ek.has(_STORAGE)
        or ek.has_any(Attributes.SIGN)
        or ek.scheme is not None
        or symmetric is None
        or symmetric.algorithm != Alg.AES
        or symmetric.key_bits not in _AES_BITS
        or symmetric.mode != Alg.CFB
    ):
        message = "no endorsement key"
        raise UnfitKey(message)


def check_ak(ak: Public) -> None:
    """Return only for an attestation key: one that signs what its TPM made, and nothing that looks like it.

    An unrestricted key would sign a quote that its owner wrote by hand.

    Raises:
        UnfitKey: it is none.
    """
    if not ak.has(_ATTESTATION) or ak.has_any(Attributes.DECRYPT):
        message = "no restricted signing key of a TPM"
        raise UnfitKey(message)
    schemes = (
        (Alg.ECDSA,) if isinstance(ak.key, ec.EllipticCurvePublicKey) else (Alg.RSASSA, Alg.RSAPSS)
    )
    if (
        ak.symmetric is not None
        or ak.scheme is None
        or ak.scheme.algorithm not in schemes
        or ak.scheme.hash not in HASHES
    ):
        message = "a signing scheme that is not accepted"
        raise UnfitKey(message)


def check_node_key(key: Public) -> None:
    """Return only for a signing key that cannot leave its TPM.

    Raises:
        UnfitKey: it is none.
    """
    if not key.has(_SIGNING) or key.has_any(Attributes.DECRYPT):
        message = "no signing key of a TPM"
        raise UnfitKey(message)
