"""Passes on what the site's agent asserts: the ramdisk's half of `discovery`."""

from collections.abc import Callable
from pathlib import Path
from typing import Self

from watchword.handlers.attestors.discovery.evidence import MAX_ASSERTION_BYTES, read_assertion
from watchword.handlers.crypto.jws import unverified_payload
from watchword.handlers.errors import BadArgument, SignatureBroken
from watchword.handlers.prover import NoEvidence, read_source
from watchword.schemas.errors import SchemaError
from watchword.schemas.ids import Role


class DiscoveryProver:
    """Shows an assertion that is about this machine's CSR."""

    id = "discovery"

    def __init__(self, source: Callable[[bytes], bytes]) -> None:
        """Take what returns the assertion for the SHA-256 of a CSR, or raises `NoEvidence`."""
        self._source = source

    @classmethod
    def of_file(cls, path: Path) -> Self:
        """Show the assertion in this file, which the site's agent writes, and writes again."""
        return cls(lambda _csr_sha256: _read(path))

    async def evidence(self, csr_sha256: bytes, role: Role) -> bytes:
        """Return the assertion, as it is read now.

        Raises:
            NoEvidence: there is none, or it is about another CSR: an older key of this machine, or another machine.
            BadArgument: what the source has is no assertion.
        """
        del role
        token = self._source(csr_sha256).strip()
        try:
            if len(token) > MAX_ASSERTION_BYTES:
                raise SignatureBroken  # noqa: TRY301 - as any other that is none
            assertion = read_assertion(unverified_payload(token))
        except (SignatureBroken, SchemaError):
            message = "this is no assertion of a site's agent"
            raise BadArgument(message) from None
        if assertion.csr_sha256 != csr_sha256.hex():
            message = f"the assertion is about another CSR; this machine's is {csr_sha256.hex()}"
            raise NoEvidence(message)
        return token

    async def answer(self, challenge: bytes, csr_sha256: bytes, role: Role) -> bytes:
        """Raise `NoEvidence`: an assertion has nothing to answer with."""
        del challenge, csr_sha256, role
        message = "an assertion cannot answer a challenge"
        raise NoEvidence(message)


def _read(path: Path) -> bytes:
    return read_source(path, MAX_ASSERTION_BYTES + 1)
