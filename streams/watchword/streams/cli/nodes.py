"""`watchword nodes list|show|evict|retire|delete|ban|unban`."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

from cyclopts import App, Parameter

from watchword.handlers.errors import BadArgument, NotFound
from watchword.handlers.operators.desk import Desk
from watchword.handlers.operators.nodes import NodeFilter, node_id
from watchword.handlers.operators.standing import MAX_TOGETHER, SeenNode, Verb
from watchword.handlers.store.operators import Row
from watchword.schemas.ids import Role
from watchword.streams.cli.at_desk import REACHING, Reaching, ReachingActing, at_desk
from watchword.streams.cli.confirming import confirm
from watchword.streams.cli.durations import duration
from watchword.streams.cli.output import say, show_one, show_rows
from watchword.streams.cli.remote_desk import RemoteDesk

app = App(name="nodes", help="Nodes that have joined.")

_COLUMNS = ("id", "tenant", "pool", "site", "role", "state", "attestor", "joined_at", "not_after")
_CHANGED = ("id", "state", "version", "tenant", "pool", "site", "role")


@app.command(name="list")
async def list_(  # noqa: PLR0913 - each is a filter
    *,
    tenant: Annotated[str | None, Parameter(help="Only this tenant's.")] = None,
    pool: Annotated[str | None, Parameter(help="Only this pool's.")] = None,
    site: Annotated[str | None, Parameter(help="Only this site's.")] = None,
    role: Annotated[Role | None, Parameter(help="Only of this role.")] = None,
    state: Annotated[
        str | None, Parameter(help="adopting, active, evicted, banned, retired or deleted.")
    ] = None,
    expiring: Annotated[
        str | None,
        Parameter(help="Only adopting and active ones whose certificate ends within this, as 7d."),
    ] = None,
    named: Annotated[
        str | None,
        Parameter(
            help="What the node is known by: the beginning of its id, a proven subject, a key, a token, a serial, a CSR."
        ),
    ] = None,
    after: Annotated[str | None, Parameter(help="The id that the page before ended with.")] = None,
    limit: Annotated[int, Parameter(help="Length of a page, at most 1000.")] = 100,
    options: Reaching = REACHING,
) -> None:
    """List nodes by id, which is by age; filters compose."""
    wanted = NodeFilter(
        tenant=tenant,
        pool=pool,
        site=site,
        role=role,
        state=state,
        named=named,
        after=after,
        expiring_in=None if expiring is None else duration(expiring),
    )
    async with at_desk(options) as desk:
        rows = await desk.list_nodes(wanted, limit)
    show_rows(rows, _COLUMNS, options.form)
    if len(rows) == limit:
        say(f"there may be more: --after {rows[-1]['id']}")


@app.command
async def show(
    node: Annotated[str, Parameter(help="The node's id.")], /, *, options: Reaching = REACHING
) -> None:
    """Show a node with its certificates, bindings, proven subjects and audit log, newest first."""
    async with at_desk(options) as desk:
        found = await desk.show_node(str(node_id(node)))
    show_one(found, options.form)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Changing(ReachingActing):
    """For commands that change nodes: those named, or all that the filters find."""

    tenant: str | None = None
    """All of this tenant's."""

    pool: str | None = None
    """All of this pool's."""

    site: str | None = None
    """All of this site's."""

    role: Role | None = None
    """All of this role."""

    state: str | None = None
    """All in this state."""

    version: Annotated[int | None, Parameter(negative="")] = None
    """The version that was seen, of one node: exit 4 if it has changed since."""

    yes: Annotated[bool, Parameter(negative="")] = False
    """Ask nothing."""


CHANGING = Changing()

Ids = Annotated[str, Parameter(help="Ids of nodes; or none, and filters.")]
AnyDesk = Desk | RemoteDesk
Change = Callable[[AnyDesk, Sequence[SeenNode], str], Awaitable[Sequence[Row]]]


@app.command
async def evict(*ids: Ids, options: Changing = CHANGING) -> None:
    """Revoke nodes' certificates; they have to attest again. Needs --why; all of them or none."""
    await _change(ids, "evict", ("adopting", "active"), _changing("evict"), options)


@app.command
async def retire(*ids: Ids, options: Changing = CHANGING) -> None:
    """Take nodes out of service for good: their bindings go, what they used up stays used up. Needs --why."""
    await _change(ids, "retire", ("adopting", "active", "evicted"), _changing("retire"), options)


@app.command
async def delete(*ids: Ids, options: Changing = CHANGING) -> None:
    """Delete nodes: as `retire`, from any state, and for nodes that should never have been. Needs --why."""
    states = ("adopting", "active", "evicted", "banned", "retired")
    await _change(ids, "delete", states, _changing("delete"), options)


@app.command
async def ban(*ids: Ids, options: Changing = CHANGING) -> None:
    """Ban nodes by everything that was proven of them alone, whatever node they would become. Needs --why."""

    async def change(desk: AnyDesk, seen: Sequence[SeenNode], why: str) -> Sequence[Row]:
        return (await desk.ban_nodes(seen, why)).nodes

    await _change(ids, "ban", ("adopting", "active", "evicted"), change, options)


@app.command
async def unban(*ids: Ids, options: Changing = CHANGING) -> None:
    """End the bans of nodes; they are evicted then, and have to attest again. Needs --why."""

    async def change(desk: AnyDesk, seen: Sequence[SeenNode], why: str) -> Sequence[Row]:
        return (await desk.unban_nodes(seen, why)).nodes

    await _change(ids, "unban", ("banned",), change, options)


def _changing(verb: Verb) -> Change:
    async def change(desk: AnyDesk, seen: Sequence[SeenNode], why: str) -> Sequence[Row]:
        return await desk.change_nodes(verb, seen, why)

    return change


async def _change(
    ids: Sequence[str], verb: str, states: Sequence[str], change: Change, options: Changing
) -> None:
    if not options.why.strip():
        message = "--why: say why, for the next operator"
        raise BadArgument(message)
    async with at_desk(options) as desk:
        seen = await _seen(desk, ids, states, options)
        if not options.yes:
            confirm(verb, len(seen), "node")
        rows = await change(desk, seen, options.why)
    show_rows(rows, _CHANGED, options.form)


async def _seen(
    desk: AnyDesk, ids: Sequence[str], states: Sequence[str], options: Changing
) -> list[SeenNode]:
    """Return the nodes that are meant: as named, or as the filters find them now."""
    filters = (options.tenant, options.pool, options.site, options.role, options.state)
    if bool(ids) == any(given is not None for given in filters):
        message = "either ids of nodes, or filters such as --tenant and --pool"
        raise BadArgument(message)
    if options.version is not None and len(ids) != 1:
        message = "--version goes with one node"
        raise BadArgument(message)
    if ids:
        return [SeenNode(node_id(one), options.version) for one in ids]
    found = await desk.find_nodes(
        NodeFilter(
            tenant=options.tenant,
            pool=options.pool,
            site=options.site,
            role=options.role,
            state=options.state,
        ),
        states=states,
        at_most=MAX_TOGETHER,
    )
    if not found:
        message = "the filters find no node that this could be done to"
        raise NotFound(message)
    return [SeenNode(one) for one in found]
