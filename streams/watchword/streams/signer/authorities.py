"""The CAs that a signer has: the one that issues and those that are retired, exchanged while it runs."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime

from watchword.handlers.crypto.authority import Authority
from watchword.handlers.crypto.profile import CertificateOrder, IssuedCertificate
from watchword.handlers.errors import SignerUnavailable


class Authorities:
    """What calls are answered with. Empty until there is something: then every call is told to come again."""

    def __init__(self, current: Sequence[Authority] = ()) -> None:
        """Take the CAs, the one that issues first."""
        self._current = tuple(current)
        self._problem: str | None = None if current else "the CA key has not been opened yet"
        self._one_at_a_time = asyncio.Lock()
        self.on_exchange: Callable[[], None] = lambda: None
        """Called when other CAs count: what callers were told of them is not true any more."""

    @property
    def chain(self) -> tuple[bytes, ...]:
        """DER: for each CA, the issuing certificate first and no root; the one that issues before all."""
        return tuple(der for authority in self._current for der in authority.chain)

    @property
    def not_after(self) -> datetime | None:
        """When the certificate of the CA that issues ends; None while there is none."""
        return self._current[0].not_after if self._current else None

    def unknown(self) -> str | None:
        """Return why nothing is known of the CAs yet."""
        return None if self._current else self._problem

    def problem(self) -> str | None:
        """Return why nothing can be signed now."""
        return self._problem

    def exchange(self, current: Sequence[Authority]) -> None:
        """Go on with these."""
        before, self._current, self._problem = self.chain, tuple(current), None
        if before != self.chain:
            self.on_exchange()

    def away(self, problem: str) -> None:
        """Say that the key is out of reach, until the next exchange."""
        self._problem = problem

    async def issue(
        self, orders: Sequence[CertificateOrder], *, now: datetime
    ) -> list[IssuedCertificate]:
        """Return certificates as `Authority.issue` does; a key in a module must not hold the loop up.

        Raises:
            OrderRefused: an order breaks the profile.
            SignerUnavailable: the key is out of reach, or it is not the CA's time.
        """
        if not self._current:
            raise SignerUnavailable(self._problem)
        authority = self._current[0]
        if not authority.is_remote:
            return authority.issue(orders, now=now)
        try:
            async with self._one_at_a_time:
                return await asyncio.to_thread(authority.issue, orders, now=now)
        except SignerUnavailable as error:
            self.away(str(error))
            raise
