"""The states of one verification: what `JoinContext` seals and opens them with."""

from datetime import datetime

from watchword.handlers.attestor import Attestor
from watchword.handlers.crypto.state import StateSealer
from watchword.schemas.ids import Role


class States:
    """Seals and opens states for one attestor, role and CSR. Small: a batch has one for each request."""

    __slots__ = ("_attestor", "_csr_sha256", "_now", "_role", "_sealer")

    def __init__(
        self, sealer: StateSealer, attestor: Attestor, role: Role, csr_sha256: bytes, now: datetime
    ) -> None:
        """Take the keys, and what a state is bound to."""
        self._sealer = sealer
        self._attestor = attestor
        self._role: Role = role
        self._csr_sha256 = csr_sha256
        self._now = now

    def seal(self, data: bytes, expires_at: datetime) -> bytes:
        """Return a state; see `JoinContext.seal_state`."""
        return self._sealer.seal(
            data,
            attestor=self._attestor.id,
            attestor_version=self._attestor.version,
            role=self._role,
            csr_sha256=self._csr_sha256,
            expires_at=expires_at,
            now=self._now,
        )

    def open(self, state: bytes) -> bytes:
        """Return the data of a state; see `JoinContext.open_state`.

        Raises:
            SealBroken: it was made for something else, or has expired.
        """
        return self._sealer.open(
            state,
            attestor=self._attestor.id,
            attestor_version=self._attestor.version,
            role=self._role,
            csr_sha256=self._csr_sha256,
            now=self._now,
        )
