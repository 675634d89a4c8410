"""`watchword bans add|list|remove`: what evidence may not prove."""

from typing import Annotated

from cyclopts import App, Parameter

from watchword.handlers.attestor import Subject
from watchword.handlers.errors import BadArgument
from watchword.handlers.operators.bans import Banned
from watchword.streams.cli.at_desk import (
    REACHING,
    REACHING_ACTING,
    Reaching,
    ReachingActing,
    at_desk,
)
from watchword.streams.cli.output import say, show_rows, text

app = App(name="bans", help="What evidence may not prove.")

_COLUMNS = ("kind", "value", "banned_at", "who", "why")

Kind = Annotated[
    str,
    Parameter(
        help="ek, ek-key, ak, hardware-key, node-key, spki, certificate, cloud-instance, cloud-account, machine, token,"
        " site, image, site-key, or what another attestor proves; `nodes show` lists a node's."
    ),
]
Value = Annotated[
    str,
    Parameter(
        help="Its value: hexadecimal SHA-256 of keys and certificates, tenant/site of a site."
    ),
]


@app.command
async def add(kind: Kind, value: Value, /, *, options: ReachingActing = REACHING_ACTING) -> None:
    """Keep out whoever proves this, under whatever node id; needs --why.

    Its nodes are banned, their certificates revoked, and approvals of it die. Exit 4 if it was banned before.
    """
    async with at_desk(options) as desk:
        done = await desk.add_bans([Subject(kind, value)], options.why)
    _tell(done, options)


@app.command(name="list")
async def list_(
    *,
    kind: Annotated[str | None, Parameter(help="Only of this kind.")] = None,
    after: Annotated[
        str | None, Parameter(help="The subject (hexadecimal) that the page before ended with.")
    ] = None,
    limit: Annotated[int, Parameter(help="Length of a page, at most 1000.")] = 100,
    options: Reaching = REACHING,
) -> None:
    """List bans."""
    try:
        start = None if after is None else bytes.fromhex(after)
    except ValueError:
        message = "--after: hexadecimal"
        raise BadArgument(message) from None
    async with at_desk(options) as desk:
        rows = await desk.list_bans(kind, start, limit)
    show_rows(rows, _COLUMNS, options.form)
    if len(rows) == limit:
        say(f"there may be more: --after {text(rows[-1]['subject'], limit=None)}")


@app.command
async def remove(kind: Kind, value: Value, /, *, options: ReachingActing = REACHING_ACTING) -> None:
    """End a ban; needs --why. Nodes that no other ban holds are evicted then: they have to attest again."""
    async with at_desk(options) as desk:
        done = await desk.remove_bans([Subject(kind, value)], options.why)
    _tell(done, options)


def _tell(done: Banned, options: ReachingActing) -> None:
    show_rows(done.bans, _COLUMNS, options.form)
    for row in done.nodes:
        say(f"node {row['id']} is {row['state']}")
    for row in done.requests:
        say(f"join request {row['id']} is {row['state']}")
