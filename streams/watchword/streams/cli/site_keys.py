"""`watchword site keys add|list|revoke`."""

from pathlib import Path
from typing import Annotated

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from cyclopts import App, Parameter

from watchword.handlers.attestors.discovery.verifier import KINDS
from watchword.handlers.crypto.private_files import read_public
from watchword.handlers.errors import BadArgument
from watchword.handlers.operators import site_keys
from watchword.handlers.operators.site_keys import Approval, SiteKeyOrder
from watchword.streams.cli.acting import ACTING, Acting, operating
from watchword.streams.cli.durations import duration
from watchword.streams.cli.granting import LISTING, Listing
from watchword.streams.cli.output import say, show_one, show_rows

app = App(name="keys", help="Keys of sites' agents, as operators see them.")

_COLUMNS = ("kid", "tenant", "site", "pool", "approval", "expires_at", "state")


@app.command
async def add(  # noqa: PLR0913 - what a key has
    tenant: Annotated[str, Parameter(help="The tenant that its machines join.")],
    site: Annotated[str, Parameter(help="Their site.")],
    pool: Annotated[str, Parameter(help="Their pool.")],
    /,
    *,
    public_key_file: Annotated[Path, Parameter(help="PEM of the public key (Ed25519).")],
    kid: Annotated[
        str | None, Parameter(help="The key's name; made from the key if not given.")
    ] = None,
    approval: Annotated[
        Approval,
        Parameter(help="Which machines an operator has to agree to."),
    ] = "always",
    kind: Annotated[
        tuple[str, ...],
        Parameter(
            help="A kind of command that its ramdisks may be sent; again for more; all that are for"
            " ramdisks if none.",
            negative="",
        ),
    ] = (),
    expires_in: Annotated[str | None, Parameter(help="Such as 90d; never if not given.")] = None,
    options: Acting = ACTING,
) -> None:
    """Believe what a site's agent says of machines that boot there."""
    order = SiteKeyOrder(
        tenant=tenant,
        site=site,
        pool=pool,
        public_key=_public(public_key_file),
        kid=kid,
        approval=approval,
        allowed_kinds=kind or KINDS,
        expires_in=None if expires_in is None else duration(expires_in),
    )
    async with operating(options) as (settings, database):
        row = await site_keys.add_site_key(database, options.actor(settings), order)
    show_one(row, options.form)


@app.command(name="list")
async def list_(*, options: Listing = LISTING) -> None:
    """List usable keys of sites' agents by name."""
    async with operating(options) as (_, database):
        rows = await site_keys.list_site_keys(database, options.filter())
    show_rows(rows, _COLUMNS, options.form)


@app.command
async def revoke(
    kid: Annotated[str, Parameter(help="The key's name.")],
    /,
    *,
    options: Acting = ACTING,
) -> None:
    """Believe a site's key no more. Nodes that joined by its word stay nodes."""
    async with operating(options) as (settings, database):
        await site_keys.revoke_site_key(database, options.actor(settings), kid)
    say(f"site key {kid} is revoked")


def _public(path: Path) -> bytes:
    try:
        key = load_pem_public_key(read_public(path))
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PublicKey):
        message = f"{path} holds no Ed25519 public key in PEM"
        raise BadArgument(message)
    return key.public_bytes_raw()
