"""`watchword tenants create|list|delete`."""

from typing import Annotated

from cyclopts import App, Parameter

from watchword.handlers.operators import places
from watchword.streams.cli.acting import ACTING, Acting, operating
from watchword.streams.cli.options import SHOWN, Shown
from watchword.streams.cli.output import say, show_one, show_rows

app = App(name="tenants", help="Tenants.")

Tenant = Annotated[str, Parameter(help="A DNS label.")]


@app.command
async def create(
    tenant: Tenant,
    /,
    *,
    title: Annotated[str, Parameter(help="What people call it.")] = "",
    options: Acting = ACTING,
) -> None:
    """Add a tenant."""
    async with operating(options) as (settings, database):
        row = await places.create_tenant(database, options.actor(settings), tenant, title=title)
    show_one(row, options.form)


@app.command(name="list")
async def list_(*, options: Shown = SHOWN) -> None:
    """List all tenants, with the number of their adopting and active nodes."""
    async with operating(options) as (_, database):
        rows = await places.list_tenants(database)
    show_rows(rows, ("id", "title", "nodes", "created_at"), options.form)


@app.command
async def delete(tenant: Tenant, /, *, options: Acting = ACTING) -> None:
    """Take away a tenant that has no pools and sites; exit 4 if it has, and how many."""
    async with operating(options) as (settings, database):
        await places.delete_tenant(database, options.actor(settings), tenant)
    say(f"tenant {tenant} is gone")
