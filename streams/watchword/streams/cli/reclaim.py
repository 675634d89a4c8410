"""`watchword reclaim grant|list|revoke`: letting a machine have its node back, once."""

from typing import Annotated

from cyclopts import App, Parameter

from watchword.handlers.attestor import Subject
from watchword.handlers.errors import BadArgument
from watchword.handlers.operators.nodes import node_id
from watchword.handlers.operators.reclaims import ReclaimOrder
from watchword.streams.cli.at_desk import (
    REACHING,
    REACHING_ACTING,
    Reaching,
    ReachingActing,
    at_desk,
)
from watchword.streams.cli.durations import duration
from watchword.streams.cli.output import say, show_one, show_rows

app = App(name="reclaim", help="Letting a machine have its node back, once.")

_COLUMNS = ("id", "node_id", "attestor", "kind", "value", "state", "expires_at", "granted_by")


@app.command
async def grant(
    node: Annotated[str, Parameter(help="The node's id.")],
    /,
    *,
    proof: Annotated[
        str,
        Parameter(
            help="ATTESTOR:KIND=VALUE: by which attestor what has to be proved, such as"
            " tpm:ek=…, cloud-iid:cloud-instance=…, join-token:token=…"
        ),
    ],
    expires_in: Annotated[str, Parameter(help="Such as 30m, 12h; at most 30d.")] = "24h",
    options: ReachingActing = REACHING_ACTING,
) -> None:
    """Let whoever proves this become that node, once; needs --why.

    It stands in the place of what the node has used up, of what it is bound to, and of the rule against a weaker proof.
    What it was bound to before is bound to it no more.
    """
    attestor, colon, named = proof.partition(":")
    kind, equals, value = named.partition("=")
    if not colon or not equals:
        message = "--proof: ATTESTOR:KIND=VALUE, such as tpm:ek=0123…"
        raise BadArgument(message)
    order = ReclaimOrder(
        node=node_id(node),
        attestor=attestor,
        subject=Subject(kind, value),
        expires_in=duration(expires_in),
    )
    async with at_desk(options) as desk:
        row = await desk.grant_reclaim(order, options.why)
    show_one(row, options.form)


@app.command(name="list")
async def list_(
    *,
    node: Annotated[str | None, Parameter(help="Only this node's.")] = None,
    all: Annotated[  # noqa: A002 - the option's name
        bool, Parameter(help="Also used, revoked and expired ones.", negative="")
    ] = False,
    after: Annotated[str | None, Parameter(help="The id that the page before ended with.")] = None,
    limit: Annotated[int, Parameter(help="Length of a page, at most 1000.")] = 100,
    options: Reaching = REACHING,
) -> None:
    """List grants, oldest first."""
    async with at_desk(options) as desk:
        rows = await desk.list_reclaims(
            None if node is None else node_id(node),
            None if after is None else node_id(after),
            limit,
            all_too=all,
        )
    show_rows(rows, _COLUMNS, options.form)
    if len(rows) == limit:
        say(f"there may be more: --after {rows[-1]['id']}")


@app.command
async def revoke(
    grant: Annotated[str, Parameter(help="The grant's id.")],
    /,
    *,
    options: ReachingActing = REACHING_ACTING,
) -> None:
    """Take a grant back; exit 4 if it was used or revoked before."""
    async with at_desk(options) as desk:
        row = await desk.revoke_reclaim(node_id(grant), options.why)
    say(f"reclaim grant {row['id']} is revoked")
