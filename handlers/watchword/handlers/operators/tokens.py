"""Join tokens: made, listed, revoked. The secret is shown once, to whoever made the token."""

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import timedelta

from watchword.handlers.attestors.join_token.evidence import new_token
from watchword.handlers.errors import BadArgument
from watchword.handlers.kinds import BUILT_IN
from watchword.handlers.operators.actor import Act, Actor, record
from watchword.handlers.operators.grants import (
    Created,
    Grant,
    check_expect,
    check_life,
    check_limit,
    check_secret_id,
    granted,
)
from watchword.handlers.store import operators
from watchword.handlers.store.connection import Database
from watchword.handlers.store.operators import NewTokenRow, Row
from watchword.schemas.ids import Role

MAX_USES = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenOrder:
    """What a token lets a machine do. `expires_in` None never expires; `allowed_kinds` None is unrestricted."""

    tenant: str
    pool: str
    site: str | None = None
    role: Role = "node"
    uses: int = 1
    expires_in: timedelta | None = timedelta(days=1)
    expect: dict[str, str] = field(default_factory=dict[str, str])
    allow_reclaim: bool = False
    allowed_kinds: tuple[str, ...] | None = ()

    def check(self, registered: Collection[str] = BUILT_IN) -> None:
        """Raise `BadArgument` for the first thing that is wrong."""
        Grant(
            tenant=self.tenant,
            pool=self.pool,
            site=self.site,
            role=self.role,
            allowed_kinds=self.allowed_kinds,
        ).check(registered)
        if not 0 < self.uses <= MAX_USES:
            message = f"uses: 1 to {MAX_USES}"
            raise BadArgument(message)
        check_life(self.expires_in, "a token")
        check_expect(self.expect)


async def create_token(database: Database, actor: Actor, order: TokenOrder) -> Created:
    """Make a token of 256 random bits and store their hash.

    Raises:
        BadArgument: the order makes no sense.
        NotFound: there is no such pool or site.
    """
    order.check(actor.kinds)
    token_id, text, secret_sha256 = new_token()
    async with database.transaction() as connection:
        now = await operators.clock(connection)
        row = await operators.create_token(
            connection,
            NewTokenRow(
                id=token_id,
                secret_sha256=secret_sha256,
                tenant=order.tenant,
                pool=order.pool,
                site=order.site,
                role=order.role,
                uses=order.uses,
                expires_at=None if order.expires_in is None else now + order.expires_in,
                expect=order.expect,
                allow_reclaim=order.allow_reclaim,
                allowed_kinds=None if order.allowed_kinds is None else list(order.allowed_kinds),
                created_by=actor.who,
            ),
            now,
        )
        await record(connection, actor, _act("token.created", row), now)
    return Created(row, text)


async def list_tokens(
    database: Database,
    *,
    tenant: str | None = None,
    spent_too: bool = False,
    after: str | None = None,
    limit: int = 100,
) -> list[Row]:
    """Return a page of tokens by id, from behind `after`; only usable ones unless `spent_too`."""
    check_limit(limit)
    async with database.transaction() as connection:
        return await operators.list_tokens(connection, tenant, after, limit, spent_too=spent_too)


async def revoke_token(database: Database, actor: Actor, token: str) -> Row:
    """Let nobody join with this token any more; nodes that did stay. Return its row.

    Raises:
        BadArgument: that is no token's id.
        NotFound: there is none of that id.
        Conflict: it was revoked before.
    """
    check_secret_id(token, "a token's")
    async with database.transaction() as connection:
        now = await operators.clock(connection)
        row = await operators.revoke_token(connection, token, now)
        await record(connection, actor, _act("token.revoked", row), now)
    return row


def _act(event_type: str, row: Row) -> Act:
    detail = granted(row) | {
        "uses": row["uses_total"],
        "usesLeft": row["uses_left"],
        "allowReclaim": row["allow_reclaim"],
    }
    return Act(event_type, row["tenant"], row["id"], row, detail)
