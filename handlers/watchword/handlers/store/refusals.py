"""Statements that read refusals, on the connection of whoever has the transaction."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import asyncpg

from watchword.handlers.store.connection import Connection
from watchword.handlers.store.statements import load

Row = dict[str, Any]

Dimension = Literal[
    "reason", "attestor", "tenant", "hardware-key", "csr", "tried", "address", "worker"
]
"""By what `top` counts."""


@dataclass(frozen=True, slots=True)
class _Statements:
    list: str
    page: str
    find: str
    nodes_of_csr: str
    same_machine: str
    top: str
    snapshot: str
    since: str


_SQL = load(_Statements, "refusals.sql")


@dataclass(frozen=True, slots=True)
class RefusalFilter:
    """Which refusals; None narrows nothing. Digests are 32 bytes."""

    since: datetime
    until: datetime | None = None
    tenant: str | None = None
    attestor: str | None = None
    reason: str | None = None
    csr_sha256: bytes | None = None
    hardware_key_sha256: bytes | None = None
    request_id: str | None = None
    request_sha256: bytes | None = None
    address: str | None = None
    tried_sha256: bytes | None = None
    before: tuple[datetime, int] | None = None
    """Time and id of the last row of the page before."""

    @property
    def arguments(self) -> tuple[object, ...]:
        """The arguments that the statements have in common, in their order."""
        return (
            self.since,
            self.until,
            self.tenant,
            self.attestor,
            self.reason,
            self.csr_sha256,
            self.hardware_key_sha256,
            self.request_id,
            self.request_sha256,
            self.address,
            self.tried_sha256,
        )


@dataclass(frozen=True, slots=True)
class Named:
    """What names one refusal; all that is not None must fit."""

    event_id: UUID | None = None
    number: int | None = None
    request_sha256: bytes | None = None
    request_id: str | None = None


async def list_refusals(connection: Connection, wanted: RefusalFilter, limit: int) -> list[Row]:
    """Return refusals, newest first."""
    at, number = wanted.before or (None, None)
    return _dicts(await connection.fetch(_SQL.list, *wanted.arguments, number, at, limit))


async def page(
    connection: Connection, wanted: RefusalFilter, after: tuple[datetime, int] | None, limit: int
) -> list[Row]:
    """Return refusals, oldest first, from behind a row's time and id."""
    at, number = after or (None, None)
    return _dicts(await connection.fetch(_SQL.page, *wanted.arguments, number, at, limit))


async def find(connection: Connection, named: Named) -> Row | None:
    """Return the newest refusal of that name."""
    row = await connection.fetchrow(
        _SQL.find, named.event_id, named.number, named.request_sha256, named.request_id
    )
    return None if row is None else dict(row)


async def nodes_of_csr(connection: Connection, csr_sha256: bytes) -> list[Row]:
    """Return the node that a CSR was admitted as, if it was."""
    return _dicts(await connection.fetch(_SQL.nodes_of_csr, csr_sha256))


async def same_machine(connection: Connection, row: Row, since: datetime) -> Row:
    """Count the refusals since then that have the same CSR, claimed hardware key or address."""
    counted = await connection.fetchrow(
        _SQL.same_machine, since, row["csr_sha256"], row["hardware_key_sha256"], row["address"]
    )
    return dict(counted or {})


async def top(
    connection: Connection, wanted: RefusalFilter, by: Dimension, limit: int
) -> list[Row]:
    """Return what has most refusals, with the counts."""
    return _dicts(await connection.fetch(_SQL.top, *wanted.arguments, by, limit))


async def snapshot(connection: Connection) -> str:
    """Return which transactions are visible now, as text."""
    found: str = await connection.fetchval(_SQL.snapshot)
    return found


async def since(connection: Connection, seen: str, until: str, wanted: RefusalFilter) -> list[Row]:
    """Return the refusals that became visible between two snapshots, oldest first; times are not looked at."""
    return _dicts(
        await connection.fetch(
            _SQL.since,
            seen,
            until,
            wanted.tenant,
            wanted.attestor,
            wanted.reason,
            wanted.csr_sha256,
            wanted.hardware_key_sha256,
            wanted.address,
            wanted.tried_sha256,
        )
    )


def _dicts(rows: "Sequence[asyncpg.Record]") -> list[Row]:
    return [dict(row) for row in rows]
