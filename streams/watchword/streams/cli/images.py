"""`watchword images create|list|revoke`."""

from typing import Annotated

from cyclopts import App, Parameter

from watchword.handlers.errors import BadArgument
from watchword.handlers.operators import images
from watchword.handlers.operators.images import ImageOrder
from watchword.streams.cli.acting import ACTING, Acting, operating
from watchword.streams.cli.durations import life
from watchword.streams.cli.granting import GRANTING, LISTING, Granting, Listing, pair
from watchword.streams.cli.output import say, show_made, show_rows

app = App(name="images", help="Images whose machines may join.")

_COLUMNS = ("id", "tenant", "pool", "site", "role", "second_fact", "expires_at", "state")


@app.command
async def create(
    tenant: Annotated[str, Parameter(help="The tenant that machines join.")],
    pool: Annotated[str, Parameter(help="Their pool.")],
    /,
    *,
    expires_in: Annotated[
        str, Parameter(help="Such as 12h, 30d; `never` is possible and unwise.")
    ] = "90d",
    once_per_machine: Annotated[
        bool,
        Parameter(help="Let each machine, by its product UUID, use it once only.", negative=""),
    ] = False,
    proof_by: Annotated[
        str | None,
        Parameter(
            help="Ask no operator, but for the proof of this attestor: x509pop, tpm, join-token … It has to lead"
            " to the same tenant and pool, and to the same site if one is given."
        ),
    ] = None,
    unsafe_single_factor: Annotated[
        bool,
        Parameter(
            help="Ask nobody: whoever has a copy of the image joins as many nodes as they like.",
            negative="",
        ),
    ] = False,
    expect: Annotated[
        tuple[str, ...],
        Parameter(
            help="name=value that a machine has to claim: productUuid, serial, mac, hardwareKey."
            " It narrows and proves nothing.",
            negative="",
        ),
    ] = (),
    options: Granting = GRANTING,
) -> None:
    """Make the secret of an image and show it, once: only its hash is stored.

    An operator approves each machine (`watchword requests`), or another attestor proves it, because all
    machines of an image share the secret. In a table the secret stands alone on the last line, so that `tail -n1` gives it to a file.
    """
    if proof_by is not None and unsafe_single_factor:
        message = "--proof-by asks for a second fact, and --unsafe-single-factor for none"
        raise BadArgument(message)
    second_fact = "unsafe_single_factor" if unsafe_single_factor else "approval"
    order = ImageOrder(
        grant=options.grant(tenant, pool),
        second_fact=second_fact if proof_by is None else f"attestor:{proof_by}",
        once_per_machine=once_per_machine,
        expect=dict(pair(text) for text in expect),
        expires_in=life(expires_in),
    )
    async with operating(options) as (settings, database):
        created = await images.create_image(database, options.actor(settings), order)
    row = {name: value for name, value in created.row.items() if name != "secret_sha256"}
    if options.form == "table":
        say("This is shown once. Put it into the image as a file of mode 0600.")
    show_made(row, "secret", created.text, options.form)


@app.command(name="list")
async def list_(*, options: Listing = LISTING) -> None:
    """List usable images by id; never their secrets."""
    async with operating(options) as (_, database):
        rows = await images.list_images(database, options.filter())
    show_rows(rows, _COLUMNS, options.form)


@app.command
async def revoke(
    image: Annotated[str, Parameter(help="The image's id (16 characters), not its secret.")],
    /,
    *,
    options: Acting = ACTING,
) -> None:
    """Let nobody join with an image's secret any more. Nodes that did stay nodes."""
    async with operating(options) as (settings, database):
        row = await images.revoke_image(database, options.actor(settings), image)
    say(f"image {row['id']} is revoked")
