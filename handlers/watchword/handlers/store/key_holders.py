"""Which worker has loaded which keys, and how many certificates of a CA are still valid."""

from collections.abc import Iterable
from dataclasses import dataclass

from watchword.handlers.store.connection import Connection
from watchword.handlers.store.statements import load

PRESENT_S = 120.0
"""A worker that was not heard of for longer is taken for gone; it tells every 30 seconds."""


@dataclass(frozen=True, slots=True)
class _Statements:
    hold: str
    forget: str
    let_go: str
    lacking: str
    valid_certificates: str


_SQL = load(_Statements, "key_holders.sql")


async def hold(connection: Connection, holder: str, kids: Iterable[str], version: int) -> None:
    """Write down what a worker has loaded, and forget those that were not heard of for a day."""
    await connection.execute(_SQL.hold, holder, sorted(kids), version)
    await connection.execute(_SQL.forget)


async def let_go(connection: Connection, holder: str) -> None:
    """Forget a worker that stops."""
    await connection.execute(_SQL.let_go, holder)


async def lacking(connection: Connection, kid: str) -> list[str]:
    """Return the names of workers that are there and have not loaded a key."""
    return [row[0] for row in await connection.fetch(_SQL.lacking, kid, PRESENT_S)]


async def valid_certificates(connection: Connection, key_identifier: bytes) -> int:
    """Return how many certificates of a CA, by its subject key identifier, have neither ended nor been revoked."""
    count: int = await connection.fetchval(_SQL.valid_certificates, key_identifier)
    return count
