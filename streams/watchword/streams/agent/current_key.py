"""The key and the certificate with which a node speaks for itself now."""

from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from watchword.handlers.crypto.chains import UNREADABLE_FILE
from watchword.handlers.crypto.renewals import sign
from watchword.streams.agent.errors import StateUnusable
from watchword.streams.agent.exchange import ExchangeKey
from watchword.streams.agent.identity import Identity
from watchword.streams.agent.tpm.node_key import TpmKey, is_in_tpm, read_tpm_key
from watchword.streams.agent.tpm.renewing import KeysInTpm


def current_key(identity: Identity) -> tuple[ExchangeKey, x509.Certificate]:
    """Return the current key and certificate; raises `StateUnusable`."""
    try:
        pem = identity.key.read_bytes()
        key = read_tpm_key(pem) if is_in_tpm(pem) else load_pem_private_key(pem, password=None)
        leaf = x509.load_pem_x509_certificate(identity.certificate.read_bytes())
    except UNREADABLE_FILE:
        message = f"{identity.folder}: key and certificate cannot be read"
        raise StateUnusable(message) from None
    if not isinstance(key, ExchangeKey):
        message = f"{identity.folder}: the key is of a kind that this agent does not make"
        raise StateUnusable(message)
    return key, leaf


def reached(tpm: KeysInTpm | None) -> KeysInTpm:
    """Return the TPM that has the node's key; raises `StateUnusable` if nobody has said how to reach it."""
    if tpm is None:
        message = "the node's key is in a TPM; run the agent with `--attestor tpm` and its options"
        raise StateUnusable(message)
    return tpm


async def signature(key: ExchangeKey, text: bytes, tpm: KeysInTpm | None) -> bytes:
    """Return the signature of the current key, wherever it is.

    Raises:
        StateUnusable: it is in a TPM, and nobody has said how to reach it.
        NoEvidence: the TPM is away, or does not know the key.
    """
    if isinstance(key, TpmKey):
        return await reached(tpm).sign(key.pem, text)
    return sign(key, text)
