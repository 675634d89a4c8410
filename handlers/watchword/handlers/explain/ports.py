"""What judging the past needs of the store, beside the reads of the join core."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import NamedTuple, Protocol
from uuid import UUID

from watchword.handlers.explain.past import PastEvent
from watchword.handlers.join.ports import Raw, Reads
from watchword.handlers.rows import AdmittedCsr, Digest, GrantRow, Pair


class UseRow(NamedTuple):
    """Who has used up something, and until when."""

    node_id: UUID
    expires_at: datetime | None


class SubjectOf(NamedTuple):
    """A node of which a subject was proven, as it is now."""

    node_id: UUID
    state: str
    joined_at: datetime


class Archive(Reads, Protocol):
    """The tables as they are now, and the journal. Everything in one snapshot; nothing is written or locked."""

    def scratch(self) -> AbstractAsyncContextManager[Raw]:
        """Give a transaction of its own, today's and rolled back, for an attestor that brings its own SQL."""
        ...

    async def events_of(self, key: str) -> Sequence[PastEvent]:
        """Return the domain events of one key, in order."""
        ...

    async def admissions(self, csrs: Sequence[Digest]) -> Mapping[Digest, AdmittedCsr]:
        """Return the admissions of CSRs."""
        ...

    async def all_grants(
        self, subjects: Collection[Digest], ids: Collection[UUID]
    ) -> Sequence[tuple[GrantRow, str]]:
        """Return reclaim grants of these subjects or ids, each with its state, the oldest first."""
        ...

    async def nodes_of_subjects(
        self, subjects: Collection[Digest]
    ) -> Mapping[Digest, Sequence[SubjectOf]]:
        """Return every node of which subjects were proven, whatever became of it."""
        ...

    async def uses(self, pairs: Collection[Pair]) -> Mapping[Pair, UseRow]:
        """Return who has used up what."""
        ...

    async def holders_of_admissions(self, lost: Sequence[Pair]) -> Mapping[Pair, UUID]:
        """Return who has CSRs and public keys."""
        ...

    async def banned(self, subjects: Sequence[Digest]) -> set[Digest]:
        """Return which subjects are banned."""
        ...

    async def waiting(self, tenants: Sequence[str]) -> Mapping[tuple[str, str | None], int]:
        """Return how many joins wait, by tenant and site."""
        ...
