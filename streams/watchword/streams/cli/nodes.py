"""`watchword nodes list|show`."""

from typing import Annotated

from cyclopts import App, Parameter

from watchword.handlers.operators import nodes
from watchword.handlers.operators.nodes import NodeFilter
from watchword.schemas.ids import Role
from watchword.streams.cli.acting import operating
from watchword.streams.cli.options import SHOWN, Shown
from watchword.streams.cli.output import say, show_one, show_rows

app = App(name="nodes", help="Nodes that have joined.")

_COLUMNS = ("id", "tenant", "pool", "site", "role", "state", "attestor", "joined_at")


@app.command(name="list")
async def list_(
    *,
    tenant: Annotated[str | None, Parameter(help="Only this tenant's.")] = None,
    pool: Annotated[str | None, Parameter(help="Only this pool's.")] = None,
    site: Annotated[str | None, Parameter(help="Only this site's.")] = None,
    role: Annotated[Role | None, Parameter(help="Only of this role.")] = None,
    state: Annotated[
        str | None, Parameter(help="adopting, active, evicted, banned, retired or deleted.")
    ] = None,
    after: Annotated[str | None, Parameter(help="The id that the page before ended with.")] = None,
    limit: Annotated[int, Parameter(help="Length of a page, at most 1000.")] = 100,
    options: Shown = SHOWN,
) -> None:
    """List nodes by id, which is by age; filters compose."""
    wanted = NodeFilter(tenant=tenant, pool=pool, site=site, role=role, state=state, after=after)
    async with operating(options) as (_, database):
        rows = await nodes.list_nodes(database, wanted, limit=limit)
    show_rows(rows, _COLUMNS, options.form)
    if len(rows) == limit:
        say(f"there may be more: --after {rows[-1]['id']}")


@app.command
async def show(
    node: Annotated[str, Parameter(help="The node's id.")], /, *, options: Shown = SHOWN
) -> None:
    """Show a node with its certificates, bindings, proven subjects and audit log, newest first."""
    async with operating(options) as (_, database):
        found = await nodes.show_node(database, node)
    show_one(found, options.form)
