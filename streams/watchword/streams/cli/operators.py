"""`watchword operators create|admit|list|revoke|link`: who may use the API and the console."""

from datetime import timedelta
from typing import Annotated, Literal

from cyclopts import App, Parameter

from watchword.handlers.operators import api_tokens, sessions
from watchword.handlers.operators.access import OperatorRole
from watchword.handlers.operators.api_tokens import ApiTokenOrder
from watchword.handlers.operators.certificates import (
    CertificateOrder,
    admit_certificate,
    canonical_name,
    certificate_id,
    is_certificate,
)
from watchword.handlers.store.operators import Row
from watchword.schemas.ids import ROOT
from watchword.streams.cli.acting import ACTING, Acting, operating
from watchword.streams.cli.durations import duration, life
from watchword.streams.cli.options import SHOWN, Shown
from watchword.streams.cli.output import say, show_made, show_one, show_rows

app = App(name="operators", help="Who may use the API and the console.")

_COLUMNS = ("id", "name", "by", "scope", "role", "state", "expires_at", "created_by")

Scope = Annotated[
    str, Parameter(name="--tenant", help="The tenant they see; root is the whole deployment.")
]
AsRole = Annotated[OperatorRole, Parameter(help="Look; decide on joins that wait; or everything.")]


@app.command
async def create(
    name: Annotated[str, Parameter(help="Whose token it is, for the audit log.")],
    /,
    *,
    tenant: Scope = ROOT,
    role: AsRole = "viewer",
    expires_in: Annotated[
        str, Parameter(help="Such as 12h, 90d; `never` is possible and unwise.")
    ] = "90d",
    options: Acting = ACTING,
) -> None:
    """Make an API token and show it, once: only its hash is stored.

    In a table the token stands alone on the last line, so that `tail -n1` gives it to a file.
    """
    order = ApiTokenOrder(
        name=name,
        scope=tenant,
        role=role,
        expires_in=life(expires_in),
    )
    async with operating(options) as (settings, database):
        created = await api_tokens.create_api_token(database, options.actor(settings), order)
    row = {name: value for name, value in created.row.items() if name != "secret_sha256"}
    if options.form == "table":
        say("This is shown once. Keep it in a file that nobody else reads, never in arguments.")
    show_made(row, "token", created.text, options.form)


@app.command
async def admit(
    name: Annotated[
        str,
        Parameter(help="email:…, uri:… or dns:… of its alternative names, subject:…, or sha256:…"),
    ],
    /,
    *,
    tenant: Scope = ROOT,
    role: AsRole = "viewer",
    expires_in: Annotated[
        str, Parameter(help="Such as 12h, 90d; `never` leaves it to the certificate.")
    ] = "never",
    options: Acting = ACTING,
) -> None:
    """Let whoever shows a client certificate of this name in, from a CA of `console.client_ca_file`.

    Taken back by `revoke`, with the name or the id that `list` shows.
    """
    order = CertificateOrder(
        name=name,
        scope=tenant,
        role=role,
        expires_in=life(expires_in),
    )
    async with operating(options) as (settings, database):
        row = await admit_certificate(database, options.actor(settings), order)
    shown = {key: value for key, value in row.items() if key != "secret_sha256"}
    show_one(shown, options.form)


@app.command(name="list")
async def list_(
    *,
    all: Annotated[  # noqa: A002 - the option's name
        bool, Parameter(help="Also revoked and expired ones.", negative="")
    ] = False,
    after: Annotated[str | None, Parameter(help="The id that the page before ended with.")] = None,
    limit: Annotated[int, Parameter(help="Length of a page, at most 1000.")] = 100,
    options: Shown = SHOWN,
) -> None:
    """List API tokens and names of client certificates by id; never secrets."""
    async with operating(options) as (_, database):
        rows = await api_tokens.list_api_tokens(database, all_too=all, after=after, limit=limit)
    show_rows([{"by": _by(row), **row} for row in rows], _COLUMNS, options.form)
    if len(rows) == limit:
        say(f"there may be more: --after {rows[-1]['id']}")


@app.command
async def revoke(
    token: Annotated[
        str,
        Parameter(help="The token's id (16 characters), not its text; or a certificate's name."),
    ],
    /,
    *,
    options: Acting = ACTING,
) -> None:
    """Let an API token, or certificates of a name, do nothing any more; the sessions that they opened end."""
    if ":" in token:
        token = certificate_id(canonical_name(token))
    async with operating(options) as (settings, database):
        row = await api_tokens.revoke_api_token(database, options.actor(settings), token)
    what = row["name"] if _by(row) == "certificate" else f"API token {row['id']}"
    say(f"{what} is revoked")


def _by(row: Row) -> Literal["certificate", "token"]:
    """Return what its operator shows."""
    return "certificate" if is_certificate(row["id"], row["name"]) else "token"


@app.command
async def link(
    name: Annotated[str, Parameter(help="Who comes by it, for the audit log.")],
    /,
    *,
    tenant: Scope = ROOT,
    role: AsRole = "viewer",
    expires_in: Annotated[str, Parameter(help="At most 1d.")] = "15m",
    options: Acting = ACTING,
) -> None:
    """Show a link that lets somebody into the console, once: for the first operator, or for a bad day."""
    life: timedelta = duration(expires_in)
    async with operating(options) as (settings, database):
        text = await sessions.create_link(
            database,
            options.actor(settings),
            who=name,
            scope=tenant,
            role=role,
            expires_in=life,
        )
    console = settings.console
    url = console.public_url or f"http://127.0.0.1:{console.port}"
    show_one({"link": f"{url}/sign-in?link={text}"}, options.form)
