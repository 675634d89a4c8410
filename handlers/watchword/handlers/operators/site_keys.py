"""Keys of sites' agents, which vouch for machines that boot there: added, listed, revoked."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, get_args

from watchword.handlers.attestors.discovery.evidence import kid_of
from watchword.handlers.attestors.discovery.verifier import KINDS
from watchword.handlers.errors import BadArgument
from watchword.handlers.kinds import BUILT_IN, permits
from watchword.handlers.operators.actor import Act, Actor, record
from watchword.handlers.operators.grants import Grant, check_limit
from watchword.handlers.store import anchor_rows, operators
from watchword.handlers.store.anchor_rows import ListFilter
from watchword.handlers.store.connection import Database
from watchword.handlers.store.operators import Row
from watchword.schemas.times import rfc3339

Approval = Literal["unknown-machines", "always"]
"""Which machines an operator has to agree to."""

_KID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_PUBLIC_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteKeyOrder:
    """What a site's agent may vouch for. `kid` None is made from the key."""

    tenant: str
    site: str
    pool: str
    public_key: bytes
    """32 raw bytes of Ed25519."""
    kid: str | None = None
    approval: Approval = "always"
    allowed_kinds: tuple[str, ...] = KINDS
    expires_in: timedelta | None = None

    def grant(self) -> Grant:
        """Return where its machines go."""
        return Grant(
            tenant=self.tenant,
            pool=self.pool,
            site=self.site,
            role="ramdisk",
            allowed_kinds=self.allowed_kinds,
        )

    def check(self, registered: Collection[str] = BUILT_IN) -> None:
        """Raise `BadArgument` for the first thing that is wrong."""
        self.grant().check(registered)
        if self.kid is not None and not _KID.fullmatch(self.kid):
            message = "kid: 1 to 64 letters, digits, hyphens and underscores"
            raise BadArgument(message)
        if len(self.public_key) != _PUBLIC_BYTES:
            message = "a site's key is Ed25519"
            raise BadArgument(message)
        if self.approval not in get_args(Approval):
            message = f"approval: one of {', '.join(get_args(Approval))}"
            raise BadArgument(message)
        if self.expires_in is not None and self.expires_in <= timedelta(0):
            message = "a key that has expired already is of no use"
            raise BadArgument(message)
        for kind in self.allowed_kinds:
            if not permits(KINDS, kind):
                message = f"kind: a ramdisk may be told {', '.join(KINDS)}, not {kind!r}"
                raise BadArgument(message)


async def add_site_key(database: Database, actor: Actor, order: SiteKeyOrder) -> Row:
    """Trust a site's agent and return the row of its key.

    Raises:
        BadArgument: the order makes no sense.
        NotFound: there is no such pool or site.
        Conflict: there is a key of that name.
    """
    order.check(actor.kinds)
    kid = order.kid or kid_of(order.public_key)
    async with database.transaction() as connection:
        now = await operators.clock(connection)
        row = await anchor_rows.create_site_key(
            connection,
            kid=kid,
            public_key=order.public_key,
            place=order.grant().row(),
            approval=order.approval,
            expires_at=None if order.expires_in is None else now + order.expires_in,
            now=now,
            who=actor.who,
        )
        await record(connection, actor, _act("discovery-site.created", row), now)
    return row


async def list_site_keys(database: Database, wanted: ListFilter) -> list[Row]:
    """Return a page of sites' keys by name; raises `BadArgument`."""
    check_limit(wanted.limit)
    async with database.transaction() as connection:
        return await anchor_rows.list_site_keys(connection, wanted)


async def revoke_site_key(database: Database, actor: Actor, kid: str) -> Row:
    """Believe this key no more; nodes that joined by its word stay. Return its row.

    Raises:
        NotFound: there is none of that name.
        Conflict: it was revoked before.
    """
    if not _KID.fullmatch(kid):
        message = "kid: 1 to 64 letters, digits, hyphens and underscores"
        raise BadArgument(message)
    async with database.transaction() as connection:
        now = await operators.clock(connection)
        row = await anchor_rows.revoke_site_key(connection, kid, now)
        await record(connection, actor, _act("discovery-site.revoked", row), now)
    return row


def _act(event_type: str, row: Row) -> Act:
    expires_at = row["expires_at"]
    detail = {
        "pool": row["pool"],
        "site": row["site"],
        "publicKey": row["public_key"].hex(),
        "approval": row["approval"],
        "expiresAt": None if expires_at is None else rfc3339(expires_at),
        "allowedKinds": row["allowed_kinds"],
    }
    return Act(event_type, row["tenant"], row["kid"], row, detail)
