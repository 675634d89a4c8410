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
from watchword.handlers.explain.inert import Inert
from watchword.handlers.explain.past import Key, Moment, PastEvent, Tables, Tail
from watchword.handlers.explain.ports import Archive, UseRow
from watchword.handlers.join.rows import (
    AdmittedCsr,
    CertificateRow,
    Digest,
    GrantRow,
    Look,
    NewRequest,
    NodeRow,
    Pair,
    Renewable,
    RequestKey,
    RequestRow,
    TokenState,
)
from watchword.handlers.rebuild.fold import Add, Patch, Put, Row
from watchword.schemas.canonical import b64

_ALIVE = frozenset(("adopting", "active", "evicted"))

K = TypeVar("K", bound=Hashable)


class PastSession(Inert):
    """Implements `join.ports.Session` for one explanation."""

    def __init__(self, archive: Archive, tail: Tail, moment: Moment) -> None:
        """Read through the archive. `tail` has every event that the moment hides."""
        self._archive = archive
        self._tail = tail
        self._moment = moment
        self._nodes: dict[UUID, Tables | None] = {}
        self._made: dict[RequestKey, RequestRow] = {}
        self._waiting: list[NewRequest] = []

    # How things were

    async def _node(self, node: UUID) -> Tables | None:
        """Return a node's rows as they were, None if they are as they are now."""
        if node not in self._nodes:
            key = str(node)
            self._nodes[node] = (
                await self._folded(key) if self._tail.touched_node(self._moment, key) else None
            )
        return self._nodes[node]

    async def _folded(self, key: str) -> Tables:
        tables = Tables()
        for event in await self._archive.events_of(key):
            if not self._moment.hides(event):
                tables.apply(event.operations())
        return tables

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
            row = (await self._folded(touches[0][0].key)).of(table).get(key)
            if row is not None:
                found[name] = decoding.ANCHORS[table](row)
        return found

    async def look(
        self, digests: Sequence[Digest], csrs: Sequence[Digest], keys: Sequence[Digest]
    ) -> Look:
        """Return the moment's time; that an outcome is recorded is looked through."""
        del digests, csrs, keys
        return Look(self._moment.now, {}, {}, {})

    # Nodes and what is theirs

    async def nodes(self, ids: Sequence[UUID]) -> Mapping[UUID, NodeRow]:
        """See `join.ports.Reads`."""
        found = dict(await self._archive.nodes(ids))
        for node in ids:
            if (was := await self._node(node)) is not None:
                found.pop(node, None)
                if (row := was.of("nodes").get((str(node),))) is not None:
                    found[node] = decoding.node_row(row)
        return found

    async def lock_nodes(self, ids: Sequence[UUID]) -> Mapping[UUID, NodeRow]:
        """Read them: nobody else is there."""
        return await self.nodes(ids)

    async def admissions(self, csrs: Sequence[Digest]) -> Mapping[Digest, AdmittedCsr]:
        """See `join.ports.Session`."""
        found: dict[Digest, AdmittedCsr] = {}
        for csr, admitted in (await self._archive.admissions(csrs)).items():
            was = await self._node(admitted.node_id)
            if was is None:
                found[csr] = admitted
                continue
            row = was.of("node_certs").get((b64(csr),))
            node = was.of("nodes").get((str(admitted.node_id),))
            if row is not None and node is not None:
                found[csr] = decoding.admitted_csr(row, node)
        return found

    async def certificates(self, tbs: Sequence[Digest]) -> Mapping[Digest, CertificateRow]:
        """See `join.ports.Reads`."""
        found: dict[Digest, CertificateRow] = {}
        for digest, now in (await self._archive.certificates(tbs)).items():
            was = await self._node(now.node_id)
            row = None if was is None else _by_tbs(was, digest)
            if was is None:
                found[digest] = now
            elif row is not None:
                found[digest] = decoding.certificate_row(row)
        return found

    async def renewables(self, tbs: Sequence[Digest]) -> Mapping[Digest, Renewable]:
        """See `join.ports.Reads`."""
        found: dict[Digest, Renewable] = {}
        for digest, now in (await self._archive.renewables(tbs)).items():
            was = await self._node(now.node.id)
            if was is None:
                found[digest] = now
                continue
            row, node = _by_tbs(was, digest), was.of("nodes").get((str(now.node.id),))
            if row is not None and node is not None:
                successor = was.of("node_certs").get((str(row.get("renewed_by")),))
                found[digest] = decoding.renewable(row, node, successor)
        return found

    async def nodes_by_subject(self, subjects: Sequence[Digest]) -> Mapping[Digest, list[UUID]]:
        """See `join.ports.Reads`."""
        found: dict[Digest, list[UUID]] = {}
        for subject, holders in (await self._archive.nodes_of_subjects(subjects)).items():
            alive: list[tuple[datetime, UUID]] = []
            for node_id, state, joined_at in holders:
                was = await self._node(node_id)
                if was is None:
                    if state in _ALIVE:
                        alive.append((joined_at, node_id))
                    continue
                row = was.of("nodes").get((str(node_id),))
                has = (b64(subject), str(node_id)) in was.of("node_subjects")
                if row is not None and has and row["state"] in _ALIVE:
                    alive.append((joined_at, node_id))
            if alive:
                alive.sort(key=lambda one: one[1])
                alive.sort(key=lambda one: one[0], reverse=True)
                found[subject] = [node_id for _, node_id in alive]
        return found

    async def bindings(self, pairs: Sequence[Pair]) -> Mapping[Pair, UUID]:
        """See `join.ports.Reads`."""
        now = await self._archive.bindings(pairs)
        found: dict[Pair, UUID] = {}
        for pair in pairs:
            holder = await self._holder("node_bindings", pair, now.get(pair))
            if holder is not None:
                found[pair] = holder
        return found

    async def bindings_of(self, nodes: Sequence[UUID]) -> Mapping[Pair, UUID]:
        """See `join.ports.Reads`."""
        found: dict[Pair, UUID] = {}
        now = await self._archive.bindings_of(nodes)
        for node in nodes:
            if (was := await self._node(node)) is None:
                found |= {pair: owner for pair, owner in now.items() if owner == node}
                continue
            for row in was.of("node_bindings").values():
                found[decoding.pair(row)] = node
        return found

    async def _holder(self, table: str, pair: Pair, now: UUID | None) -> UUID | None:
        """Return which node had a binding or a claim."""
        key = (pair[0], b64(pair[1]))
        touches = self._tail.after(self._moment, table, key)
        candidates = [UUID(event.key) for event, _ in touches] + ([] if now is None else [now])
        for node in dict.fromkeys(candidates):
            was = await self._node(node)
            if (node == now) if was is None else (key in was.of(table)):
                return node
        return None

    async def claim_bindings(self, wanted: Mapping[Pair, UUID]) -> set[Pair]:
        """Return what nobody had."""
        return set(wanted) - (await self.bindings(list(wanted))).keys()

    async def holders_of_admissions(self, lost: Sequence[Pair]) -> Mapping[Pair, UUID]:
        """See `join.ports.Session`."""
        found: dict[Pair, UUID] = {}
        for pair, now in (await self._archive.holders_of_admissions(lost)).items():
            holder = await self._holder("admission_claims", pair, now)
            if holder is not None:
                found[pair] = holder
        return found

    async def claim_admissions(self, wanted: Mapping[Pair, UUID]) -> set[Pair]:
        """Return what nobody had."""
        return set(wanted) - (await self.holders_of_admissions(list(wanted))).keys()

    async def _uses(self, pairs: Sequence[Pair]) -> dict[Pair, UseRow]:
        found = dict(await self._archive.uses(pairs))
        for pair in pairs:
            key = (pair[0], b64(pair[1]))
            # What was used up later was free, or its use had expired.
            if self._tail.after(self._moment, "attestation_uses", key):
                found.pop(pair, None)
        return found

    async def claim_uses(
        self, wanted: Mapping[Pair, tuple[UUID, datetime | None]], now: datetime
    ) -> set[Pair]:
        """Return what was free, or free again."""
        used = await self._uses(list(wanted))
        return {
            pair
            for pair in wanted
            if (row := used.get(pair)) is None
            or (row.expires_at is not None and row.expires_at <= now)
        }

    async def use_holders(self, lost: Sequence[Pair]) -> Mapping[Pair, UUID]:
        """See `join.ports.Session`."""
        return {pair: row.node_id for pair, row in (await self._uses(lost)).items()}

    # Tokens, grants, bans

    async def tokens(self, ids: Sequence[str]) -> Mapping[str, Token]:
        """See `join.ports.Reads`."""
        found: dict[str, Token] = {}
        for token_id, token in (await self._archive.tokens(ids)).items():
            touches = [done for _, done in self._tail.after(self._moment, "tokens", (token_id,))]
            if any(isinstance(done, Put) for done in touches):
                continue
            spent = sum(done.amount for done in touches if isinstance(done, Add))
            revoked = any(
                isinstance(done, Patch) and "revoked_at" in done.changes for done in touches
            )
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
            if any(isinstance(operation, Put) for _, operation in touches):
                continue
            if touches or state == "open":
                yield row

    async def banned(self, subjects: Sequence[Digest]) -> set[Digest]:
        """See `join.ports.Session`."""
        found = await self._archive.banned(subjects)
        for subject in subjects:
            touches = self._tail.after(self._moment, "bans", (b64(subject),))
            if touches:
                (found.discard if isinstance(touches[0][1], Put) else found.add)(subject)
        return found

    # What operators have written down

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
            own = [event for event, _ in touches if event.type.startswith("join.")]
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
        for _, first in self._tail.touched_rows(self._moment, "join_requests"):
            if first.place is not None and first.place[0] in tenants:
                found[first.place] = found.get(first.place, 0) + _waited_more(first)
        for request in self._waiting:
            place = (request.tenant, request.site)
            found[place] = found.get(place, 0) + 1
        return found


def _waited_more(first: PastEvent) -> int:
    """Return by how much more waited before the first later event about a join."""
    if first.type == "join.waiting":
        return -1
    if first.type == "join.expired" and first.private["row"]["decided_at"] is not None:
        return 0  # approved, and never used
    return 1


def _by_tbs(was: Tables, tbs: Digest) -> Row | None:
    wanted = b64(tbs)
    return next((row for row in was.of("node_certs").values() if row["tbs_sha256"] == wanted), None)
