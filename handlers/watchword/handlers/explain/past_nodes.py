"""Nodes at a moment of the past, and what was theirs: certificates, claims, subjects, bindings, uses."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

from watchword.handlers.explain import decoding
from watchword.handlers.explain.inert import Inert
from watchword.handlers.explain.past import Moment, Tables, Tail
from watchword.handlers.explain.ports import Archive, UseRow
from watchword.handlers.rebuild.fold import Row
from watchword.handlers.rows import (
    AdmittedCsr,
    CertificateRow,
    Digest,
    Look,
    Mark,
    NodeRow,
    Pair,
    Renewable,
)
from watchword.schemas.canonical import b64

_ALIVE = frozenset(("adopting", "active", "evicted"))


class PastNodes(Inert):
    """Part of `join.ports.Session`: nodes, and what is theirs."""

    def __init__(self, archive: Archive, tail: Tail, moment: Moment) -> None:
        """Read through the archive. `tail` has every event that the moment hides."""
        self._archive = archive
        self._tail = tail
        self._moment = moment
        self._nodes: dict[UUID, Tables | None] = {}

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
            if not self._moment.hides(event.mark):
                tables.apply(event.operations())
        return tables

    async def look(
        self,
        digests: Sequence[Digest],
        csrs: Sequence[Digest],
        mark: Mark | None = None,
    ) -> Look:
        """Return the moment's time; that an outcome is recorded is looked through, and no mark is left."""
        del digests, csrs, mark
        return Look(self._moment.now, {}, {})

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
        candidates = [UUID(touch.mark.key) for touch in touches] + ([] if now is None else [now])
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


def _by_tbs(was: Tables, tbs: Digest) -> Row | None:
    wanted = b64(tbs)
    return next((row for row in was.of("node_certs").values() if row["tbs_sha256"] == wanted), None)
