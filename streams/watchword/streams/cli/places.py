"""`watchword pools …` and `watchword sites …`: the same commands for both kinds of place."""

from typing import Annotated

from cyclopts import App, Parameter

from watchword.handlers.operators import places
from watchword.handlers.store.operators import Place
from watchword.streams.cli.acting import ACTING, Acting, operating
from watchword.streams.cli.options import SHOWN, Shown
from watchword.streams.cli.output import say, show_one, show_rows

_COLUMNS = ("tenant", "id", "created_at")

Tenant = Annotated[str, Parameter(help="The tenant's name.")]
Name = Annotated[str, Parameter(help="A DNS label.")]


def place_app(kind: Place) -> App:
    """Return the commands for one kind of place."""
    app = App(name=f"{kind}s", help=f"{kind.capitalize()}s of a tenant.")

    @app.command
    async def create(tenant: Tenant, name: Name, /, *, options: Acting = ACTING) -> None:
        """Add one to a tenant."""
        async with operating(options) as (settings, database):
            row = await places.create_place(database, options.actor(settings), kind, tenant, name)
        show_one(row, options.form)

    @app.command(name="list")
    async def list_(
        *,
        tenant: Annotated[str | None, Parameter(help="Only this tenant's.")] = None,
        options: Shown = SHOWN,
    ) -> None:
        """List them by tenant and name."""
        async with operating(options) as (_, database):
            rows = await places.list_places(database, kind, tenant=tenant)
        show_rows(rows, _COLUMNS, options.form)

    @app.command
    async def delete(tenant: Tenant, name: Name, /, *, options: Acting = ACTING) -> None:
        """Take one away that nothing names; exit 4 if something does, and what."""
        async with operating(options) as (settings, database):
            await places.delete_place(database, options.actor(settings), kind, tenant, name)
        say(f"{kind} {tenant}/{name} is gone")

    # The decorators have registered them.
    del create, list_, delete
    return app
