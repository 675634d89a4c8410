"""Cloud accounts whose instances may join: added, looked at, revoked, deleted."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, get_args

from watchword.handlers.errors import BadArgument
from watchword.handlers.kinds import BUILT_IN
from watchword.handlers.operators.actor import Act, Actor, record
from watchword.handlers.operators.grants import Grant, check_limit
from watchword.handlers.store import anchor_rows, operators
from watchword.handlers.store.anchor_rows import ListFilter
from watchword.handlers.store.connection import Database
from watchword.handlers.store.operators import Row

Provider = Literal["aws", "gcp", "azure"]

_ACCOUNT = re.compile(r"[A-Za-z0-9:._-]{1,128}")
_REGION = re.compile(r"[a-z0-9-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudAccountOrder:
    """Where instances of an account go. `regions` None is any."""

    provider: Provider
    account: str
    grant: Grant
    regions: tuple[str, ...] | None = None
    approval: bool = False

    def check(self, registered: Collection[str] = BUILT_IN) -> None:
        """Raise `BadArgument` for the first thing that is wrong."""
        check_key(self.provider, self.account)
        self.grant.check(registered)
        for region in self.regions or ():
            if not _REGION.fullmatch(region):
                message = f"region: lower-case letters, digits and hyphens, not {region!r}"
                raise BadArgument(message)


async def add_cloud_account(database: Database, actor: Actor, order: CloudAccountOrder) -> Row:
    """Let instances of an account join, and return its row.

    Raises:
        BadArgument: the order makes no sense.
        NotFound: there is no such pool or site.
        Conflict: there is a row of this account; one that was revoked stays so.
    """
    order.check(actor.kinds)
    async with database.transaction() as connection:
        now = await operators.clock(connection)
        row = await anchor_rows.create_cloud_account(
            connection,
            provider=order.provider,
            account=order.account,
            place=order.grant.row(),
            regions=None if order.regions is None else list(order.regions),
            approval=order.approval,
            now=now,
            who=actor.who,
        )
        await record(connection, actor, _act("cloud-account.created", row), now)
    return row


async def list_cloud_accounts(database: Database, wanted: ListFilter) -> list[Row]:
    """Return a page of accounts by `provider/account`; raises `BadArgument`."""
    check_limit(wanted.limit)
    async with database.transaction() as connection:
        return await anchor_rows.list_cloud_accounts(connection, wanted)


async def revoke_cloud_account(
    database: Database, actor: Actor, provider: str, account: str
) -> Row:
    """Let no further instance of an account join; nodes that did stay. Return its row.

    Raises:
        BadArgument: that is no account.
        NotFound: there is none.
        Conflict: it was revoked before.
    """
    check_key(provider, account)
    async with database.transaction() as connection:
        now = await operators.clock(connection)
        row = await anchor_rows.revoke_cloud_account(connection, provider, account, now)
        await record(connection, actor, _act("cloud-account.revoked", row), now)
    return row


async def get_cloud_account(database: Database, provider: str, account: str) -> Row:
    """Return an account; raises `BadArgument` or `NotFound`."""
    check_key(provider, account)
    async with database.transaction() as connection:
        return await anchor_rows.get_cloud_account(connection, provider, account)


async def delete_cloud_account(
    database: Database, actor: Actor, provider: str, account: str
) -> Row:
    """Take an account away, so that it can be added again; return what it was.

    Nodes that joined stay, and so does what is used up: none of its instances joins a second time.

    Raises:
        BadArgument: that is no account.
        NotFound: there is none.
    """
    check_key(provider, account)
    async with database.transaction() as connection:
        now = await operators.clock(connection)
        row = await anchor_rows.delete_cloud_account(connection, provider, account)
        await record(connection, actor, _act("cloud-account.deleted", row), now)
    return row


def check_key(provider: str, account: str) -> None:
    """Raise `BadArgument` if this can be no account."""
    if provider not in get_args(Provider):
        message = f"provider: one of {', '.join(get_args(Provider))}"
        raise BadArgument(message)
    if not _ACCOUNT.fullmatch(account):
        message = "account: 1 to 128 letters, digits and . : _ -"
        raise BadArgument(message)


def _act(event_type: str, row: Row) -> Act:
    detail = {
        "pool": row["pool"],
        "site": row["site"],
        "role": row["role"],
        "regions": row["regions"],
        "approval": row["approval"],
        "allowedKinds": row["allowed_kinds"],
    }
    return Act(event_type, row["tenant"], f"{row['provider']}/{row['account']}", row, detail)
