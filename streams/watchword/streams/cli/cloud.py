"""`watchword cloud accounts add|list|show|revoke|delete`."""

from typing import Annotated

from cyclopts import App, Parameter

from watchword.handlers.operators import cloud_accounts
from watchword.handlers.operators.cloud_accounts import CloudAccountOrder, Provider
from watchword.streams.cli.acting import ACTING, Acting, operating
from watchword.streams.cli.granting import GRANTING, LISTING, Granting, Listing
from watchword.streams.cli.options import SHOWN, Shown
from watchword.streams.cli.output import say, show_one, show_rows

app = App(name="cloud", help="Cloud accounts whose instances may join.")
accounts = App(name="accounts", help="Accounts of cloud providers.")
app.command(accounts)

_COLUMNS = ("provider", "account", "tenant", "pool", "site", "role", "regions", "approval", "state")

Account = Annotated[str, Parameter(help="The account, subscription or project.")]


@accounts.command(name=("add", "create"))
async def add(
    provider: Annotated[Provider, Parameter(help="Whose cloud it is.")],
    account: Account,
    tenant: Annotated[str, Parameter(help="The tenant that its instances join.")],
    pool: Annotated[str, Parameter(help="Their pool.")],
    /,
    *,
    region: Annotated[
        tuple[str, ...],
        Parameter(
            help="A region of which instances may join; again for more, any if none.", negative=""
        ),
    ] = (),
    approval: Annotated[
        bool, Parameter(help="Have an operator agree to each instance.", negative="")
    ] = False,
    options: Granting = GRANTING,
) -> None:
    """Let instances of an account join."""
    order = CloudAccountOrder(
        provider=provider,
        account=account,
        grant=options.grant(tenant, pool),
        regions=region or None,
        approval=approval,
    )
    async with operating(options) as (settings, database):
        row = await cloud_accounts.add_cloud_account(database, options.actor(settings), order)
    show_one(row, options.form)


@accounts.command(name="list")
async def list_(*, options: Listing = LISTING) -> None:
    """List usable accounts by provider and account; a page ends with `provider/account`."""
    async with operating(options) as (_, database):
        rows = await cloud_accounts.list_cloud_accounts(database, options.filter())
    show_rows(rows, _COLUMNS, options.form)


@accounts.command
async def show(
    provider: Annotated[Provider, Parameter(help="Whose cloud it is.")],
    account: Account,
    /,
    *,
    options: Shown = SHOWN,
) -> None:
    """Show an account, also one that was revoked."""
    async with operating(options) as (_, database):
        row = await cloud_accounts.get_cloud_account(database, provider, account)
    show_one(row, options.form)


@accounts.command
async def delete(
    provider: Annotated[Provider, Parameter(help="Whose cloud it is.")],
    account: Account,
    /,
    *,
    options: Acting = ACTING,
) -> None:
    """Take an account away; it can be added again, as something else. No instance of it joins twice all the same."""
    async with operating(options) as (settings, database):
        actor = options.actor(settings)
        await cloud_accounts.delete_cloud_account(database, actor, provider, account)
    say(f"cloud account {provider}/{account} is deleted")


@accounts.command
async def revoke(
    provider: Annotated[Provider, Parameter(help="Whose cloud it is.")],
    account: Account,
    /,
    *,
    options: Acting = ACTING,
) -> None:
    """Let no further instance of an account join. Nodes that did stay nodes."""
    async with operating(options) as (settings, database):
        actor = options.actor(settings)
        await cloud_accounts.revoke_cloud_account(database, actor, provider, account)
    say(f"cloud account {provider}/{account} is revoked")
