"""One connection's statements about nodes that were there before: renewals, thefts, granted reclaims."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

from watchword.handlers.rows import (
    Digest,
    GrantRow,
    Pair,
    RenewedCertificate,
    RevokedCertificate,
)
from watchword.handlers.store.command_writes import CommandWrites
from watchword.handlers.store.join_reads import columns
from watchword.handlers.store.join_statements import RECLAIMS, RENEWALS


class LifeWrites(CommandWrites):
    """Part of `join.ports.Session`."""

    async def renew(self, renewed: Sequence[RenewedCertificate], now: datetime) -> None:
        """See `join.ports.Session`."""
        await self._execute(
            RENEWALS.renew,
            [one.certificate for one in renewed],
            [one.superseded for one in renewed],
            [one.certificate.csr_sha256 for one in renewed],
            now,
        )

    async def contest(self, csrs: Sequence[Digest], now: datetime) -> set[Digest]:
        """See `join.ports.Session`."""
        return {row[0] for row in await self._fetch(RENEWALS.contest, csrs, now)}

    async def revoke(
        self, nodes: Sequence[UUID], now: datetime, why: str
    ) -> Sequence[RevokedCertificate]:
        """See `join.ports.Session`."""
        rows = await self._fetch(RENEWALS.revoke, nodes, now, why)
        return sorted(RevokedCertificate(*row) for row in rows)

    async def evict(self, nodes: Sequence[UUID], now: datetime, who: str, why: str) -> None:
        """See `join.ports.Session`."""
        await self._execute(RENEWALS.evict, nodes, now, who, why)

    async def lock_grants(self, ids: Sequence[UUID]) -> Mapping[UUID, GrantRow]:
        """See `join.ports.Session`."""
        return {row["id"]: GrantRow(*row) for row in await self._fetch(RECLAIMS.lock, ids)}

    async def use_holders(self, lost: Sequence[Pair]) -> Mapping[Pair, UUID]:
        """See `join.ports.Session`."""
        rows = await self._fetch(RECLAIMS.use_holders, *columns(list(lost), 2))
        return {(row[0], row[1]): row[2] for row in rows}

    async def unbind(
        self, nodes: Sequence[UUID], kept: Sequence[Pair]
    ) -> Mapping[UUID, list[Pair]]:
        """See `join.ports.Session`."""
        found: dict[UUID, list[Pair]] = {}
        rows = await self._fetch(RECLAIMS.unbind, nodes, *columns(list(kept), 2))
        for node_id, attestor, subject in rows:
            found.setdefault(node_id, []).append((attestor, subject))
        return found

    async def use_grants(
        self, used: Mapping[UUID, Digest], forget_hardware: Sequence[UUID], now: datetime
    ) -> None:
        """See `join.ports.Session`."""
        await self._execute(RECLAIMS.use, list(used), list(used.values()), now)
        if forget_hardware:
            await self._execute(RECLAIMS.forget_hardware, forget_hardware)
