"""One connection's statements about requests that a worker may have ended with."""

from collections.abc import Mapping
from uuid import UUID

from watchword.handlers.rows import Digest
from watchword.handlers.store.join_reads import ReadingConnection
from watchword.handlers.store.join_statements import ATTEMPTS


class AttemptWrites(ReadingConnection):
    """Part of `join.ports.Session`."""

    async def take_up(self, incarnation: UUID) -> Mapping[Digest, int]:
        """See `join.ports.Session`."""
        await self._execute(ATTEMPTS.take_up, incarnation)
        await self._execute(ATTEMPTS.forget_old, incarnation)
        return {row[0]: row[1] for row in await self._fetch(ATTEMPTS.suspects)}

    async def count_try(self, digest: Digest, tries: int) -> None:
        """See `join.ports.Session`."""
        await self._execute(ATTEMPTS.count_try, digest, tries)

    async def clear(self, digest: Digest) -> None:
        """See `join.ports.Session`."""
        await self._execute(ATTEMPTS.clear, digest)
