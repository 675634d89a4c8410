"""API tokens: made, listed, revoked, and recognised. The secret is shown once, to whoever made the token."""

import hmac
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256

from watchword.handlers.crypto import named_secrets
from watchword.handlers.crypto.named_secrets import NamedSecret
from watchword.handlers.errors import BadArgument, Denied
from watchword.handlers.operators.access import ROLES, Access, OperatorRole
from watchword.handlers.operators.actor import Act, Actor, record
from watchword.handlers.operators.grants import Created, check_life, check_limit, check_secret_id
from watchword.handlers.operators.places import label
from watchword.handlers.store import access as store
from watchword.handlers.store import operators
from watchword.handlers.store.access import SecretRow
from watchword.handlers.store.connection import Database
from watchword.handlers.store.operators import Row
from watchword.schemas.ids import ROOT
from watchword.schemas.times import rfc3339

PREFIX = "wo1"
_WHAT = "API token"
_MAX_NAME = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiTokenOrder:
    """Who the token is for, and what it lets them do. `expires_in` None never expires."""

    name: str
    scope: str = ROOT
    role: OperatorRole = "viewer"
    expires_in: timedelta | None = timedelta(days=90)

    def check(self) -> None:
        """Raise `BadArgument` for the first thing that is wrong."""
        if not 0 < len(self.name) <= _MAX_NAME or not self.name.isprintable():
            message = f"name: 1 to {_MAX_NAME} printable characters"
            raise BadArgument(message)
        label(self.scope, "tenant")
        if self.role not in ROLES:
            message = f"role: one of {', '.join(ROLES)}"
            raise BadArgument(message)
        check_life(self.expires_in, "a token")


async def create_api_token(database: Database, actor: Actor, order: ApiTokenOrder) -> Created:
    """Make a token of 256 random bits and store their hash.

    Raises:
        BadArgument: the order makes no sense.
        NotFound: there is no such tenant.
    """
    order.check()
    made = named_secrets.make(PREFIX)
    async with database.transaction() as connection:
        now = await operators.clock(connection)
        row = SecretRow(
            id=made.id,
            secret_sha256=made.sha256,
            who=order.name,
            scope=order.scope,
            role=order.role,
            expires_at=None if order.expires_in is None else now + order.expires_in,
        )
        stored = await store.create_token(connection, row, actor.who, now)
        await record(connection, actor, granted_access("operator-token.created", stored), now)
    return Created(stored, made.text)


async def list_api_tokens(
    database: Database, *, all_too: bool = False, after: str | None = None, limit: int = 100
) -> list[Row]:
    """Return a page of tokens by id, from behind `after`; only usable ones unless `all_too`."""
    check_limit(limit)
    async with database.transaction() as connection:
        return await store.list_tokens(connection, after, limit, all_too=all_too)


async def revoke_api_token(database: Database, actor: Actor, token: str) -> Row:
    """Let a token do nothing any more, and end the sessions that it opened. Return its row.

    Raises:
        BadArgument: that is no token's id.
        NotFound: there is none of that id.
        Conflict: it was revoked before.
    """
    check_secret_id(token, "a token's")
    async with database.transaction() as connection:
        now = await operators.clock(connection)
        row = await store.revoke_token(connection, token, now)
        await record(connection, actor, granted_access("operator-token.revoked", row), now)
    return row


def parse_api_token(text: str) -> NamedSecret:
    """Return the token that a file or a header holds; raises `BadArgument`, which does not repeat it."""
    return named_secrets.parse(PREFIX, _WHAT, text)


async def access_by_token(database: Database, shown: NamedSecret) -> Access:
    """Return what a token lets its holder do.

    Raises:
        Denied: there is none of its id, its secret is another, or it was revoked or has expired.
    """
    async with database.transaction() as connection:
        row = await store.token(connection, shown.id)
    # Compared even where there is no row, so that the time taken says nothing.
    stored: bytes = bytes(32) if row is None else row["secret_sha256"]
    is_same = hmac.compare_digest(sha256(shown.secret).digest(), stored)
    if row is None or not is_same:
        message = "the API token is not known, was revoked or has expired"
        raise Denied(message)
    return Access(f"token:{row['name']}", row["scope"], row["role"])


def granted_access(event_type: str, row: Row) -> Act:
    """Return the act by which somebody got or lost a row of the table, for the audit log and the journal."""
    expires_at = row["expires_at"]
    detail = {
        "name": row["name"],
        "scope": row["scope"],
        "role": row["role"],
        "expiresAt": None if expires_at is None else rfc3339(expires_at),
    }
    return Act(event_type, row["scope"], row["id"], row, detail)
