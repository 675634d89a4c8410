"""A session of the join core at a moment of the past. It reads, claims in memory alone, and writes nothing."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from watchword.handlers.anchors import (
    CloudAccount,
    DiscoverySite,
    Image,
    TpmEndorsement,
    TpmPolicy,
)
from watchword.handlers.attestor import Token
from watchword.handlers.explain import decoding
from watchword.handlers.explain.past import Key, Mark, Moment, Tail
from watchword.handlers.explain.past_nodes import PastNodes
from watchword.handlers.explain.ports import Archive
from watchword.handlers.rebuild.fold import Put
from watchword.handlers.rows import (
    Digest,
    GrantRow,
    NewRequest,
    RequestKey,
    RequestRow,
    TokenState,
)
from watchword.schemas.canonical import b64

K = TypeVar("K", bound=Hashable)


class PastSession(PastNodes):
    """Implements `join.ports.Session` for one explanation."""

    def __init__(self, archive: Archive, tail: Tail, moment: Moment) -> None:
        """Read through the archive. `tail` has every event that the moment hides."""
        super().__init__(archive, tail, moment)
        self._made: dict[RequestKey, RequestRow] = {}
        self._waiting: list[NewRequest] = []

    async def open_commands(self, nodes: Sequence[UUID]) -> Mapping[UUID, int]:
        """Return none: whether a node may have its commands is explained, and not which were handed out."""
        del nodes
        return {}

    # Tokens, grants, bans

    async def tokens(self, ids: Sequence[str]) -> Mapping[str, Token]:
        """See `join.ports.Reads`."""
        found: dict[str, Token] = {}
        for token_id, token in (await self._archive.tokens(ids)).items():
            touches = self._tail.after(self._moment, "tokens", (token_id,))
            if any(touch.did is Put for touch in touches):
                continue
            spent = sum(touch.amount for touch in touches)
            revoked = any(touch.revokes for touch in touches)
            found[token_id] = replace(
                token, uses_left=token.uses_left - spent, revoked=token.revoked and not revoked
            )
        return found

    async def lock_tokens(self, ids: Sequence[str]) -> Mapping[str, TokenState]:
        """Read them: nobody else is there."""
        return {
            token_id: TokenState(token.uses_left, token.expires_at, token.revoked)
            for token_id, token in (await self.tokens(ids)).items()
        }

    async def grants(self, subjects: Sequence[Digest]) -> Mapping[Digest, list[GrantRow]]:
        """See `join.ports.Reads`."""
        found: dict[Digest, list[GrantRow]] = {}
        for row in self._open(await self._archive.all_grants(subjects, ())):
            found.setdefault(row.subject, []).append(row)
        return found

    async def lock_grants(self, ids: Sequence[UUID]) -> Mapping[UUID, GrantRow]:
        """Read them: nobody else is there."""
        return {row.id: row for row in self._open(await self._archive.all_grants((), ids))}

    def _open(self, rows: Iterable[tuple[GrantRow, str]]) -> Iterable[GrantRow]:
        for row, state in rows:
            touches = self._tail.after(self._moment, "reclaim_grants", (str(row.id),))
            if any(touch.did is Put for touch in touches):
                continue
            if touches or state == "open":
                yield row

    async def banned(self, subjects: Sequence[Digest]) -> set[Digest]:
        """See `join.ports.Session`."""
        found = await self._archive.banned(subjects)
        for subject in subjects:
            touches = self._tail.after(self._moment, "bans", (b64(subject),))
            if touches:
                (found.discard if touches[0].did is Put else found.add)(subject)
        return found

    # What operators have written down

    async def _rows_were(
        self, table: str, keys: Mapping[K, Key], now: Mapping[K, Any]
    ) -> dict[K, Any]:
        """Return rows of a table of operators' words: those of now, or folded again."""
        found: dict[K, Any] = {}
        for name, key in keys.items():
            touches = self._tail.after(self._moment, table, key)
            if not touches:
                if name in now:
                    found[name] = now[name]
                continue
            row = (await self._folded(touches[0].mark.key)).of(table).get(key)
            if row is not None:
                found[name] = decoding.ANCHORS[table](row)
        return found

    async def images(self, ids: Sequence[str]) -> Mapping[str, Image]:
        """See `join.ports.Reads`."""
        now = await self._archive.images(ids)
        return await self._rows_were("images", {one: (one,) for one in ids}, now)

    async def discovery_sites(self, kids: Sequence[str]) -> Mapping[str, DiscoverySite]:
        """See `join.ports.Reads`."""
        now = await self._archive.discovery_sites(kids)
        return await self._rows_were("discovery_sites", {one: (one,) for one in kids}, now)

    async def cloud_accounts(
        self, keys: Sequence[tuple[str, str]]
    ) -> Mapping[tuple[str, str], CloudAccount]:
        """See `join.ports.Reads`."""
        now = await self._archive.cloud_accounts(keys)
        return await self._rows_were("cloud_accounts", {one: one for one in keys}, now)

    async def tpm_endorsements(self, eks: Sequence[Digest]) -> Mapping[Digest, TpmEndorsement]:
        """See `join.ports.Reads`."""
        now = await self._archive.tpm_endorsements(eks)
        return await self._rows_were("tpm_endorsements", {one: (b64(one),) for one in eks}, now)

    async def tpm_policies(
        self, keys: Sequence[tuple[str, str]]
    ) -> Mapping[tuple[str, str], TpmPolicy]:
        """See `join.ports.Reads`."""
        now = await self._archive.tpm_policies(keys)
        return await self._rows_were("tpm_policies", {one: one for one in keys}, now)

    # Joins that wait

    async def requests(self, keys: Sequence[RequestKey]) -> Mapping[RequestKey, RequestRow]:
        """See `join.ports.Reads`."""
        now = await self._archive.requests(keys)
        found: dict[RequestKey, RequestRow] = {}
        for key in keys:
            row_key = (key[0], b64(key[1]), b64(key[2]))
            touches = self._tail.after(self._moment, "join_requests", row_key)
            row = now.get(key)
            own = [touch.mark for touch in touches if touch.mark.type.startswith("join.")]
            if own:
                folded = (await self._folded(own[0].key)).of("join_requests").get(row_key)
                row = None if folded is None else decoding.request_row(folded)
            elif touches and row is not None:
                # Only an admission has touched it since, and used the operator's word.
                row = replace(row, state="approved", version=row.version - 1)
            if row is not None:
                found[key] = row
        return found

    async def lock_requests(self, keys: Sequence[RequestKey]) -> Mapping[RequestKey, RequestRow]:
        """Read them: nobody else is there."""
        made = {key: self._made[key] for key in keys if key in self._made}
        return {**await self.requests([key for key in keys if key not in made]), **made}

    async def claim_requests(
        self, wanted: Sequence[NewRequest], now: datetime, expires_at: datetime
    ) -> set[RequestKey]:
        """Note what would be inserted."""
        del now
        there = await self.requests([request.key for request in wanted])
        for request in wanted:
            if request.key not in there:
                self._waiting.append(request)
                self._made[request.key] = RequestRow(
                    request.key, request.id, "pending", 1, request.snapshot, expires_at
                )
        return set(self._made)

    async def waiting(self, tenants: Sequence[str]) -> Mapping[tuple[str, str | None], int]:
        """See `join.ports.Session`. Counted back by what was decided or began to wait since."""
        found = dict(await self._archive.waiting(tenants))
        for first in self._tail.touched_rows(self._moment, "join_requests"):
            if first.place is not None and first.place[0] in tenants:
                found[first.place] = found.get(first.place, 0) + _waited_more(first)
        for request in self._waiting:
            place = (request.tenant, request.site)
            found[place] = found.get(place, 0) + 1
        return found


def _waited_more(first: Mark) -> int:
    """Return by how much more waited before the first later event about a join."""
    if first.type == "join.waiting":
        return -1
    if first.type == "join.expired" and first.was_decided:
        return 0  # approved, and never used
    return 1
