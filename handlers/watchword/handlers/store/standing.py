"""Statements that change what nodes may, in the transaction of whoever calls: states, bans, revocations.

The order of locks is that of a worker's settlement: bans, nodes, join requests, bindings, the journal;
within a table the order of the key.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson

from watchword.handlers.attestor import Subject
from watchword.handlers.node_events import ChangedNode
from watchword.handlers.rows import Pair, RevokedCertificate
from watchword.handlers.store.connection import Connection
from watchword.handlers.store.join_statements import RENEWALS
from watchword.handlers.store.joins import BAN_LOCK
from watchword.handlers.store.statements import load
from watchword.handlers.store.translate import translated

Row = dict[str, Any]

_BY_VALUE = ("token", "hardware-key", "node-key", "site")
"""Kinds of subjects that stand in columns of `nodes`."""

_OF_MANY = frozenset(("token", "site", "image", "site-key", "cloud-account"))
"""Kinds of subjects that are no machine's own: a ban of one node leaves them alone."""


@dataclass(frozen=True, slots=True)
class _Statements:
    lock_bans: str
    lock_nodes: str
    unbind: str
    change: str
    add_bans: str
    remove_bans: str
    list_bans: str
    banned: str
    nodes_of: str
    subjects_of: str
    undecided: str
    revoked: str
    expiring: str


_SQL = load(_Statements, "standing.sql")


async def lock_bans(connection: Connection) -> None:
    """Wait for the batches that run, and keep the next ones waiting: the first statement of a ban."""
    await connection.execute(_SQL.lock_bans, BAN_LOCK)


async def lock_nodes(connection: Connection, ids: Collection[UUID]) -> dict[UUID, ChangedNode]:
    """Lock nodes; return those that there are."""
    rows = await connection.fetch(_SQL.lock_nodes, sorted(ids))
    return {node_id: ChangedNode(str(node_id), *columns) for node_id, *columns in rows}


async def unbind(connection: Connection, ids: Collection[UUID]) -> dict[UUID, list[Pair]]:
    """Drop the bindings of locked nodes; return them. What they have used up stays used up."""
    found: dict[UUID, list[Pair]] = {}
    for node_id, attestor, subject in await connection.fetch(_SQL.unbind, sorted(ids)):
        found.setdefault(node_id, []).append((attestor, subject))
    return found


async def change(
    connection: Connection,
    ids: Collection[UUID],
    *,
    state: str,
    now: datetime,
    who: str,
    action: str,
    why: str,
) -> list[Row]:
    """Give locked nodes a state, with an audit row each; return their rows by id."""
    rows = await connection.fetch(_SQL.change, sorted(ids), state, now, who, action, why)
    return [dict(row) for row in rows]


async def revoke(
    connection: Connection, ids: Collection[UUID], now: datetime, why: str
) -> list[RevokedCertificate]:
    """Revoke what certificates locked nodes have that may still be used, in order."""
    rows = await connection.fetch(RENEWALS.revoke, sorted(ids), now, why)
    return sorted(RevokedCertificate(*row) for row in rows)


async def add_bans(
    connection: Connection, subjects: Collection[Subject], now: datetime, who: str, why: str
) -> list[Row]:
    """Ban subjects; return the rows of those that were not banned before."""
    said = sorted((subject.digest, subject.kind, subject.value) for subject in subjects)
    columns = [list(column) for column in zip(*said, strict=True)] or [[], [], []]
    return [dict(row) for row in await connection.fetch(_SQL.add_bans, *columns, now, who, why)]


async def remove_bans(connection: Connection, subjects: Collection[Subject]) -> list[Row]:
    """Take bans away; return their rows."""
    digests = sorted(subject.digest for subject in subjects)
    return [dict(row) for row in await connection.fetch(_SQL.remove_bans, digests)]


async def list_bans(
    connection: Connection, kind: str | None, after: bytes | None, limit: int
) -> list[Row]:
    """Return bans in the order of their digests."""
    return [dict(row) for row in await connection.fetch(_SQL.list_bans, kind, after, limit)]


async def nodes_of(connection: Connection, subjects: Collection[Subject]) -> list[UUID]:
    """Return the nodes of which any of these subjects was proven."""

    def values(kind: str) -> list[str]:
        return [subject.value for subject in subjects if subject.kind == kind]

    rows = await connection.fetch(
        _SQL.nodes_of,
        [subject.digest for subject in subjects],
        _digests(values("certificate")),
        _digests(values("spki")),
        *(values(kind) for kind in _BY_VALUE),
    )
    return sorted(row[0] for row in rows)


async def subjects_of(
    connection: Connection, ids: Collection[UUID]
) -> dict[UUID, list[tuple[Subject, bool]]]:
    """Return every proven subject of nodes, each with whether it is one machine's own."""
    found: dict[UUID, list[tuple[Subject, bool]]] = {}
    for node_id, kind, value, nodes in await connection.fetch(_SQL.subjects_of, sorted(ids)):
        own = nodes == 1 and kind not in _OF_MANY
        found.setdefault(node_id, []).append((Subject(kind, value), own))
    return found


async def banned(connection: Connection, subjects: Collection[Subject]) -> set[bytes]:
    """Return the digests of those that are banned."""
    digests = [subject.digest for subject in subjects]
    return {row[0] for row in await connection.fetch(_SQL.banned, digests)}


async def revoked(connection: Connection, now: datetime) -> list[Row]:
    """Return the certificates that are revoked, from a day past their end on without them."""
    return [dict(row) for row in await connection.fetch(_SQL.revoked, now)]


async def expiring(connection: Connection, days: int) -> int:
    """Return how many adopting and active nodes have a certificate that ends within so many days."""
    async with translated():
        found: int = await connection.fetchval(_SQL.expiring, days)
    return found


async def undecided_of(connection: Connection, subjects: Collection[Subject]) -> list[UUID]:
    """Return the joins that wait, or wait to be used, and that would prove any of these subjects."""
    wanted = {subject.digest for subject in subjects}
    return [
        row["id"]
        for row in await connection.fetch(_SQL.undecided)
        if wanted & _proven(orjson.loads(row["snapshot"]))
    ]


def _proven(snapshot: Row) -> set[bytes]:
    """Return the digests of what an approved grant proves; its CSR's key is looked at when it joins."""
    found = [Subject(kind, value) for kind, value in snapshot["subjects"]]
    for kind, name in (
        ("token", "token"),
        ("hardware-key", "hardwareKey"),
        ("node-key", "nodeKeyUri"),
        ("certificate", "certificate"),
    ):
        if snapshot[name] is not None:
            found.append(Subject(kind, snapshot[name]))
    if snapshot["site"] is not None:
        found.append(Subject("site", f"{snapshot['tenant']}/{snapshot['site']}"))
    return {subject.digest for subject in found}


def _digests(texts: Sequence[str]) -> list[bytes]:
    found: list[bytes] = []
    for text in texts:
        try:
            found.append(bytes.fromhex(text))
        except ValueError:
            continue
    return found
