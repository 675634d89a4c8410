"""`watchword requests list|show|approve|reject`: joins that wait for an operator."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID

from cyclopts import App, Parameter

from watchword.handlers.errors import BadArgument, Conflict
from watchword.handlers.operators.desk import Desk
from watchword.handlers.operators.nodes import node_id
from watchword.handlers.operators.requests import Seen
from watchword.handlers.store.approvals import RequestFilter
from watchword.streams.cli.at_desk import REACHING, Reaching, ReachingActing, at_desk
from watchword.streams.cli.confirming import confirm
from watchword.streams.cli.output import say, show_one, show_rows, text
from watchword.streams.cli.remote_desk import RemoteDesk

app = App(name="requests", help="Joins that wait for an operator.")

_COLUMNS = (
    "id",
    "state",
    "version",
    "attestor",
    "tenant",
    "pool",
    "site",
    "role",
    "expires_at",
    "csr_sha256",
)
_DECIDED = ("id", "state", "version", "tenant", "pool", "site", "role", "csr_sha256")

Ids = Annotated[
    tuple[str, ...], Parameter(help="Ids of join requests, as `requests list` shows them.")
]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Deciding(ReachingActing):
    """For decisions on joins that wait."""

    why: Annotated[str, Parameter(name=["--comment", "--why"])] = ""
    """Why; for the audit log and the next operator."""

    version: Annotated[int | None, Parameter(negative="")] = None
    """The version that was seen, of one request; without it the request is read and shown first."""

    yes: Annotated[bool, Parameter(negative="")] = False
    """Ask nothing."""


DECIDING = Deciding()


@app.command(name="list")
async def list_(  # noqa: PLR0913 - each is a filter
    *,
    state: Annotated[
        str, Parameter(help="pending, approved, rejected, expired, consumed; or all.")
    ] = "pending",
    tenant: Annotated[str | None, Parameter(help="Only this tenant's.")] = None,
    site: Annotated[str | None, Parameter(help="Only this site's.")] = None,
    attestor: Annotated[str | None, Parameter(help="Only those of this attestor.")] = None,
    pool: Annotated[str | None, Parameter(help="Only this pool's.")] = None,
    csr: Annotated[
        str | None,
        Parameter(help="Only those whose CSR's SHA-256 begins so, as the agent prints it."),
    ] = None,
    after: Annotated[str | None, Parameter(help="The id that the page before ended with.")] = None,
    limit: Annotated[int, Parameter(help="Length of a page, at most 1000.")] = 100,
    options: Reaching = REACHING,
) -> None:
    """List joins that wait, oldest first."""
    wanted = RequestFilter(
        state=None if state == "all" else state,
        tenant=tenant,
        site=site,
        attestor=attestor,
        after=None if after is None else node_id(after),
        pool=pool,
        csr=csr,
    )
    async with at_desk(options) as desk:
        rows = await desk.list_requests(wanted, limit)
    show_rows(rows, _COLUMNS, options.form)
    if len(rows) == limit:
        say(f"there may be more: --after {rows[-1]['id']}")


@app.command
async def show(
    request: Annotated[str, Parameter(help="The id of a join request.")],
    /,
    *,
    options: Reaching = REACHING,
) -> None:
    """Show what an approval would grant, what is proven of the machine, and what it only claims.

    Compare `csr sha256` with the fingerprint that the machine's agent prints while it waits.
    """
    async with at_desk(options) as desk:
        (row,) = await desk.show_requests([node_id(request)])
    show_one(_for_people(row) if options.form == "table" else row, options.form)


@app.command
async def approve(ids: Ids, /, *, options: Deciding = DECIDING) -> None:
    """Let machines join with exactly what is shown; exit 4 if another operator was first.

    All of them or none. The machines come again by themselves, within the time that
    `deployment.approval_retry_after_s` says.
    """
    await _decide(ids, "approve", options)


@app.command
async def reject(ids: Ids, /, *, options: Deciding = DECIDING) -> None:
    """Refuse machines that wait, or take back approvals that were not used yet. Needs --comment.

    All of them or none; exit 4 if another operator was first.
    """
    if not options.why.strip():
        message = "--comment: say why, for the next operator"
        raise BadArgument(message)
    await _decide(ids, "reject", options)


async def _decide(texts: Sequence[str], verb: str, options: Deciding) -> None:
    ids = [node_id(one) for one in texts]
    if options.version is not None and len(ids) != 1:
        message = "--version goes with one request"
        raise BadArgument(message)
    async with at_desk(options) as desk:
        seen = await _seen(desk, ids, verb, options)
        decide = desk.approve if verb == "approve" else desk.reject
        rows = await decide(seen, options.why)
    show_rows([{name: row[name] for name in _DECIDED} for row in rows], _DECIDED, options.form)


async def _seen(
    desk: Desk | RemoteDesk, ids: Sequence[UUID], verb: str, options: Deciding
) -> list[Seen]:
    """Show the requests, have the person confirm, and return which versions were shown."""
    rows = await desk.show_requests(ids)
    for row in rows:
        if options.version is not None and row["version"] != options.version:
            message = f"join request {row['id']} has changed: version {row['version']}, not {options.version}"
            raise Conflict(message)
    if not options.yes:
        for row in rows:
            _show_on_stderr(row)
        confirm(verb, len(rows), "join")
    return [Seen(UUID(str(row["id"])), row["version"]) for row in rows]


def _show_on_stderr(row: dict[str, Any]) -> None:
    grants = row["grants"]
    kinds = "unrestricted" if grants["unrestricted_kinds"] else text(grants["allowed_kinds"])
    say(
        f"join request {row['id']} (version {row['version']}, {row['state']}, by {row['attestor']})"
    )
    say(f"  CSR SHA-256  {row['csr_sha256'].hex()}")
    say(
        f"  grants       tenant {grants['tenant']}, pool {grants['pool']}, site {text(grants['site'])},"
        f" role {grants['role']}, kinds {kinds}"
    )
    if grants["rekeys_node"] is not None:
        say(f"  re-keys      node {grants['rekeys_node']}")
    for name, value in row["facts"].items():
        say(f"  {text(name)}: {text(value)}")
    for name, value in row["unproven_claims"].items():
        say(f"  unproven: {text(name)}: {text(value)}")


def _for_people(row: dict[str, Any]) -> dict[str, Any]:
    grants = dict(row["grants"])
    if grants.pop("unrestricted_kinds"):
        grants["allowed_kinds"] = "unrestricted"
    return row | {"grants": grants}
