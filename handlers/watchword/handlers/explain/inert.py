"""The part of a session that writes: it does nothing here, and says so."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn
from uuid import UUID

from watchword.handlers.journal import Entry
from watchword.handlers.rows import (
    Bucket,
    CommandRow,
    Digest,
    InboxClaim,
    InboxRow,
    LockedCommand,
    NewRequest,
    Pair,
    RefusalRow,
    RenewedCertificate,
    RequestKey,
    RevokedCertificate,
    SentCommand,
    Writes,
)


def _never() -> NoReturn:
    message = "an explanation writes nothing"
    raise RuntimeError(message)


class Inert:
    """Part of `join.ports.Session`: nobody who explains may come here."""

    # ruff: noqa: ARG002, D102 - the names are the protocol's

    async def begin(self) -> None:
        _never()

    async def commit(self) -> None:
        _never()

    async def rollback(self) -> None:
        _never()

    async def claim_inbox(self, claims: Sequence[InboxClaim], now: datetime) -> set[Digest]:
        _never()

    async def read_inbox(self, digests: Sequence[Digest]) -> Mapping[Digest, InboxRow]:
        _never()

    async def take_up(self, incarnation: UUID) -> Mapping[Digest, int]:
        _never()

    async def count_try(self, digest: Digest, tries: int) -> None:
        _never()

    async def clear(self, digest: Digest) -> None:
        _never()

    async def lock_commands(
        self, nodes: Sequence[UUID], reported: Sequence[UUID]
    ) -> Mapping[UUID, list[LockedCommand]]:
        _never()

    async def change_commands(
        self, changed: Sequence[CommandRow], sent: Mapping[UUID, Digest]
    ) -> None:
        _never()

    async def activate(self, nodes: Sequence[UUID], now: datetime, why: str) -> None:
        _never()

    async def sent_with(self, digests: Sequence[Digest]) -> Mapping[Digest, list[SentCommand]]:
        _never()

    async def give_back(
        self,
        admissions: Sequence[Pair],
        uses: Sequence[Pair],
        bindings: Sequence[Pair],
        inbox: Sequence[Digest],
    ) -> None:
        _never()

    async def correct(
        self,
        admissions: Mapping[Pair, UUID],
        uses: Mapping[Pair, tuple[UUID, datetime | None]],
        bindings: Mapping[Pair, UUID],
        inbox: Sequence[InboxClaim],
    ) -> None:
        _never()

    async def supersede(
        self, nodes: Sequence[UUID], now: datetime, why: str
    ) -> Mapping[UUID, list[Digest]]:
        _never()

    async def write(self, writes: Writes, now: datetime) -> None:
        _never()

    async def unbind(
        self, nodes: Sequence[UUID], kept: Sequence[Pair]
    ) -> Mapping[UUID, list[Pair]]:
        _never()

    async def use_grants(
        self, used: Mapping[UUID, Digest], forget_hardware: Sequence[UUID], now: datetime
    ) -> None:
        _never()

    async def renew(self, renewed: Sequence[RenewedCertificate], now: datetime) -> None:
        _never()

    async def contest(self, csrs: Sequence[Digest], now: datetime) -> set[Digest]:
        _never()

    async def revoke(
        self, nodes: Sequence[UUID], now: datetime, why: str
    ) -> Sequence[RevokedCertificate]:
        _never()

    async def evict(self, nodes: Sequence[UUID], now: datetime, who: str, why: str) -> None:
        _never()

    async def claim_slots(self, need: Mapping[Bucket, int]) -> Mapping[Bucket, int]:
        _never()

    async def write_refusals(self, rows: Sequence[RefusalRow], worker: str, now: datetime) -> None:
        _never()

    async def append(self, entries: Sequence[Entry]) -> None:
        _never()

    async def lock_places(self, tenants: Sequence[str]) -> None:
        """Do nothing: nobody else is there."""

    async def settle_requests(
        self,
        given_back: Sequence[RequestKey],
        renewed: Sequence[NewRequest],
        consumed: Sequence[RequestKey],
        now: datetime,
        expires_at: datetime,
    ) -> None:
        _never()

    async def savepoint(self) -> None:
        _never()

    async def rollback_to_savepoint(self) -> None:
        _never()

    # What an author's statements do is done in a transaction of their own, which nothing is kept of (`Scratch`).

    async def transaction_id(self) -> str:
        _never()

    async def raw(
        self, statement: str, arguments: Sequence[object], *, role: str, rows: bool
    ) -> Any:  # noqa: ANN401 - as the protocol
        _never()
