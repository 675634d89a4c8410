"""Statements about who may use the API and the console, in the transaction of whoever calls."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import asyncpg

from watchword.handlers.errors import Conflict, NotFound
from watchword.handlers.store.connection import Connection
from watchword.handlers.store.operators import Row
from watchword.handlers.store.statements import load


@dataclass(frozen=True, slots=True)
class _Statements:
    create_token: str
    list_tokens: str
    lock_token: str
    revoke_token: str
    token: str
    admit_certificate: str
    certificates: str
    add_link: str
    lock_link: str
    use_link: str
    open_session: str
    session: str
    close_session: str
    forget: str


_SQL = load(_Statements, "access.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretRow:
    """What every kind of access has: a public id, the hash of its secret, and what it is good for."""

    id: str
    secret_sha256: bytes
    who: str
    scope: str
    role: str
    expires_at: datetime | None


async def _added(
    connection: Connection, statement: str, row: SecretRow, by: str, now: datetime
) -> Any:  # noqa: ANN401 - a record, or None
    """Return the row that a statement has added; raises `NotFound` without its tenant."""
    try:
        return await connection.fetchrow(
            statement,
            row.id,
            row.secret_sha256,
            row.who,
            row.scope,
            row.role,
            row.expires_at,
            now,
            by,
        )
    except asyncpg.ForeignKeyViolationError as error:
        message = f"no tenant {row.scope}"
        raise NotFound(message) from error


async def create_token(connection: Connection, row: SecretRow, by: str, now: datetime) -> Row:
    """Add an API token, whose name is `row.who`; raises `NotFound` without its tenant."""
    made = await _added(connection, _SQL.create_token, row, by, now)
    return dict(made)


async def list_tokens(
    connection: Connection, after: str | None, limit: int, *, all_too: bool
) -> list[Row]:
    """Return API tokens by id, without the hash of their secret; only usable ones unless asked."""
    return [dict(row) for row in await connection.fetch(_SQL.list_tokens, all_too, after, limit)]


async def revoke_token(connection: Connection, token: str, now: datetime) -> Row:
    """Revoke an API token; raises `NotFound`, or `Conflict` if it was revoked before."""
    locked = await connection.fetchrow(_SQL.lock_token, token)
    if locked is None:
        message = f"no API token {token}"
        raise NotFound(message)
    if locked["revoked_at"] is not None:
        message = f"API token {token} was revoked before"
        raise Conflict(message)
    row = await connection.fetchrow(_SQL.revoke_token, token, now)
    return dict(row)  # type: ignore[arg-type]  # the row is locked


async def token(connection: Connection, token_id: str) -> Row | None:
    """Return a usable API token: `secret_sha256`, `name`, `scope`, `role`."""
    row = await connection.fetchrow(_SQL.token, token_id)
    return None if row is None else dict(row)


async def admit_certificate(connection: Connection, row: SecretRow, by: str, now: datetime) -> Row:
    """Add the operator of a certificate's name; raises `Conflict` if it is let in, `NotFound` without its tenant.

    One who was taken out comes back without the sessions of before.
    """
    made = await _added(connection, _SQL.admit_certificate, row, by, now)
    if made is None:
        message = f"{row.who} is let in already: revoke {row.id} first"
        raise Conflict(message)
    return dict(made)


async def certificates(connection: Connection, ids: Sequence[str]) -> list[Row]:
    """Return the usable ones of these: `id`, `secret_sha256`, `name`, `scope`, `role`."""
    return [dict(row) for row in await connection.fetch(_SQL.certificates, ids)]


async def add_link(connection: Connection, row: SecretRow) -> Row:
    """Add a link that lets somebody in once."""
    made = await connection.fetchrow(
        _SQL.add_link, row.id, row.secret_sha256, row.who, row.scope, row.role, row.expires_at
    )
    return dict(made)  # type: ignore[arg-type]  # an INSERT that did not raise returns its row


async def lock_link(connection: Connection, link_id: str) -> Row | None:
    """Lock a link that is still good: `secret_sha256`, `who`, `scope`, `role`."""
    row = await connection.fetchrow(_SQL.lock_link, link_id)
    return None if row is None else dict(row)


async def use_link(connection: Connection, link_id: str) -> None:
    """Use a locked link up."""
    await connection.execute(_SQL.use_link, link_id)


async def open_session(
    connection: Connection, row: SecretRow, token_id: str | None, now: datetime
) -> None:
    """Add a session, and drop those that are over."""
    await connection.execute(_SQL.forget, now)
    await connection.execute(
        _SQL.open_session,
        row.id,
        row.secret_sha256,
        row.who,
        row.scope,
        row.role,
        token_id,
        now,
        row.expires_at,
    )


async def session(connection: Connection, session_id: str) -> Row | None:
    """Return a session that is open: `secret_sha256`, `who`, `scope`, `role`, `expires_at`, and its token's id and name."""
    row = await connection.fetchrow(_SQL.session, session_id)
    return None if row is None else dict(row)


async def close_session(connection: Connection, session_id: str) -> None:
    """End a session, if it is there."""
    await connection.execute(_SQL.close_session, session_id)
