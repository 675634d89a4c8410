"""What a machine has its cloud put into the evidence, so that it is about this CSR. Agents import it: it stays light."""

DEFAULT_AUDIENCE = "watchword"
"""What the service is called in Google's tokens if nobody says otherwise."""

NONCE_DIGITS = 10


def bound_audience(audience: str, csr_sha256: bytes) -> str:
    """Return the audience of Google's token: `<audience>/<SHA-256 of the CSR in hex>`."""
    return f"{audience}/{csr_sha256.hex()}"


def nonce_for(csr_sha256: bytes) -> str:
    """Return the nonce of Azure's document: ten digits of the CSR's digest, all that Azure takes."""
    return str(int.from_bytes(csr_sha256) % 10**NONCE_DIGITS).zfill(NONCE_DIGITS)
