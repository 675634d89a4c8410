"""`watchword tokens create|list|revoke`."""

from typing import Annotated

from cyclopts import App, Parameter

from watchword.handlers.errors import BadArgument
from watchword.handlers.operators.grants import check_secret_id
from watchword.handlers.operators.tokens import TokenOrder
from watchword.schemas.ids import Role
from watchword.streams.cli.at_desk import (
    REACHING,
    REACHING_ACTING,
    Reaching,
    ReachingActing,
    at_desk,
)
from watchword.streams.cli.durations import life
from watchword.streams.cli.output import say, show_made, show_rows

app = App(name="tokens", help="Join tokens.")

_COLUMNS = ("id", "tenant", "pool", "site", "role", "uses_left", "expires_at", "state")


@app.command
async def create(  # noqa: PLR0913 - what a token has
    tenant: Annotated[str, Parameter(help="The tenant that machines join.")],
    pool: Annotated[str, Parameter(help="Their pool.")],
    /,
    *,
    site: Annotated[str | None, Parameter(help="Their site.")] = None,
    role: Annotated[Role, Parameter(help="Their role.")] = "node",
    uses: Annotated[int, Parameter(help="How many machines may join with it.")] = 1,
    expires_in: Annotated[
        str, Parameter(help="Such as 30m, 12h, 7d; `never` is possible and unwise.")
    ] = "24h",
    expect: Annotated[
        tuple[str, ...],
        Parameter(
            help="name=value that the machine has to claim: productUuid, serial, mac, hardwareKey;"
            " or node=ID for the node that it may reclaim. It narrows and proves nothing.",
            negative="",
        ),
    ] = (),
    allow_reclaim: Annotated[
        bool, Parameter(help="Let it take over a node of the same place.", negative="")
    ] = False,
    kind: Annotated[
        tuple[str, ...],
        Parameter(help="A kind of command its nodes may be sent; again for more.", negative=""),
    ] = (),
    all_kinds: Annotated[
        bool, Parameter(help="Do not restrict the kinds. Without it, none but --kind.", negative="")
    ] = False,
    options: ReachingActing = REACHING_ACTING,
) -> None:
    """Make a token and show it, once: only its hash is stored.

    In a table the token stands alone on the last line, so that `tail -n1` gives it to a file.
    """
    if all_kinds and kind:
        message = "--kind and --all-kinds exclude each other"
        raise BadArgument(message)
    order = TokenOrder(
        tenant=tenant,
        pool=pool,
        site=site,
        role=role,
        uses=uses,
        expires_in=life(expires_in),
        expect=dict(_pair(text) for text in expect),
        allow_reclaim=allow_reclaim,
        allowed_kinds=None if all_kinds else kind,
    )
    async with at_desk(options) as desk:
        created = await desk.create_token(order, options.why)
    row = {name: value for name, value in created.row.items() if name != "secret_sha256"}
    if options.form == "table":
        say("This is shown once. Hand it over in a file or on standard input, never in arguments.")
    show_made(row, "token", created.text, options.form)


@app.command(name="list")
async def list_(
    *,
    tenant: Annotated[str | None, Parameter(help="Only this tenant's.")] = None,
    all: Annotated[  # noqa: A002 - the option's name
        bool, Parameter(help="Also revoked, expired and used-up ones.", negative="")
    ] = False,
    after: Annotated[str | None, Parameter(help="The id that the page before ended with.")] = None,
    limit: Annotated[int, Parameter(help="Length of a page, at most 1000.")] = 100,
    options: Reaching = REACHING,
) -> None:
    """List usable tokens by id; never their secrets."""
    async with at_desk(options) as desk:
        rows = await desk.list_tokens(tenant, after, limit, spent_too=all)
    show_rows(rows, _COLUMNS, options.form)


@app.command
async def revoke(
    token: Annotated[str, Parameter(help="The token's id (16 characters), not its text.")],
    /,
    *,
    options: ReachingActing = REACHING_ACTING,
) -> None:
    """Let nobody join with a token any more. Nodes that did stay nodes."""
    check_secret_id(token, "a token's")
    async with at_desk(options) as desk:
        row = await desk.revoke_token(token, options.why)
    say(f"token {row['id']} is revoked")


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        message = f"expect: name=value, not {text!r}"
        raise BadArgument(message)
    return name, value
