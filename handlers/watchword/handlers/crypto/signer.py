"""The seam to whoever holds the CA key."""

from collections.abc import Sequence
from typing import Protocol

from watchword.handlers.crypto.authority import Authority
from watchword.handlers.crypto.profile import CertificateOrder, IssuedCertificate


class Signer(Protocol):
    """Turns orders into certificates."""

    async def issue(self, orders: Sequence[CertificateOrder]) -> list[IssuedCertificate]:
        """Return one certificate for each order, in order; all of them or none.

        Raises:
            OrderRefused: an order breaks the profile: a bug of ours, never a machine's doing.
            SignerUnavailable: no answer in time, or the CA's own certificate is not valid now.
        """
        ...

    async def chain(self) -> tuple[bytes, ...]:
        """Return DER, the issuing CA first, without roots; then those of CAs that are retired.

        Which of them belong to a certificate says `issuers.chain_of`.

        Raises:
            SignerUnavailable: no answer in time.
        """
        ...


class LocalSigner:
    """The CA key in this very process: for `dev` and tests, where nobody needs a second user."""

    def __init__(self, authority: Authority) -> None:
        """Take the authority."""
        self._authority = authority

    async def issue(self, orders: Sequence[CertificateOrder]) -> list[IssuedCertificate]:
        """Sign at once; see `Signer.issue`."""
        return self._authority.issue(orders)

    async def chain(self) -> tuple[bytes, ...]:
        """Return the authority's chain."""
        return self._authority.chain
