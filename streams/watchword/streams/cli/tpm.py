"""`watchword tpm enrol|list|revoke`, and `watchword tpm policy set|values|list|delete`."""

import json
from pathlib import Path
from typing import Annotated, Any, cast

from cyclopts import App, Parameter

from watchword.handlers.errors import BadArgument
from watchword.handlers.operators import tpms
from watchword.streams.cli.acting import ACTING, Acting, operating
from watchword.streams.cli.granting import GRANTING, LISTING, Granting, Listing
from watchword.streams.cli.options import SHOWN, Shown
from watchword.streams.cli.output import Verbatim, say, show_one, show_rows

app = App(name="tpm", help="TPMs that may join, and what they have to show.")
policy = App(name="policy", help="What TPMs of a pool have to show.")
app.command(policy)

_COLUMNS = ("ek_sha256", "tenant", "pool", "site", "role", "approval", "note", "state")
_MAX_FILE_BYTES = 1024 * 1024

Tenant = Annotated[str, Parameter(help="The tenant's name.")]
Pool = Annotated[str, Parameter(help="The pool's name.")]


@app.command
async def enrol(
    tenant: Tenant,
    pool: Pool,
    /,
    *,
    ek: Annotated[
        tuple[str, ...],
        Parameter(
            help="SHA-256 of an endorsement key's public area in hexadecimal, as `watchword agent tpm`"
            " shows it; again for more.",
            negative="",
        ),
    ] = (),
    note: Annotated[str, Parameter(help="What is written beside those of --ek.")] = "",
    from_file: Annotated[
        Path | None,
        Parameter(help="CSV instead: such a SHA-256, and perhaps a note; one a line."),
    ] = None,
    approval: Annotated[
        bool,
        Parameter(help="An operator has to agree to the first join of each.", negative=""),
    ] = False,
    options: Granting = GRANTING,
) -> None:
    """Let TPMs join, all or none of them; exit 4 if one is enrolled already."""
    if (from_file is None) == (not ek):
        message = "one of --ek and --from-file names the endorsement keys"
        raise BadArgument(message)
    if from_file is not None:
        eks = tpms.read_list(_read(from_file))
    else:
        eks = tpms.read_list("\n".join(ek))
        eks = dict.fromkeys(eks, note)
    async with operating(options) as (settings, database):
        rows = await tpms.enrol_tpms(
            database,
            options.actor(settings),
            eks,
            options.grant(tenant, pool),
            approval=approval,
        )
    say(f"{len(rows)} TPMs are enrolled")


@app.command(name="list")
async def list_(*, options: Listing = LISTING) -> None:
    """List enrolled TPMs by the SHA-256 of their endorsement keys."""
    async with operating(options) as (_, database):
        rows = await tpms.list_tpms(database, options.filter())
    show_rows(rows, _COLUMNS, options.form)


@app.command
async def revoke(
    ek: Annotated[str, Parameter(help="SHA-256 of the endorsement key, in hexadecimal.")],
    /,
    *,
    options: Acting = ACTING,
) -> None:
    """Let a TPM join no more. Its node stays a node."""
    async with operating(options) as (settings, database):
        await tpms.revoke_tpm(database, options.actor(settings), tpms.ek_digest(ek))
    say(f"TPM {ek} is revoked")


@policy.command(name="set")
async def set_(
    tenant: Tenant,
    pool: Pool,
    /,
    *,
    from_file: Annotated[Path, Parameter(help="The policy, a JSON object.")],
    options: Acting = ACTING,
) -> None:
    """Say what TPMs of a pool have to show, in the place of what was said before."""
    said = _object(_read(from_file))
    async with operating(options) as (settings, database):
        row = await tpms.set_policy(database, options.actor(settings), tenant, pool, said)
    show_one(row | {"policy": Verbatim(said)}, options.form)


@policy.command
async def values(
    tenant: Tenant,
    pool: Pool,
    /,
    *,
    add: Annotated[
        tuple[str, ...],
        Parameter(
            help="bank:pcr=hex, a value that this PCR may have; again for more.", negative=""
        ),
    ] = (),
    remove: Annotated[
        tuple[str, ...],
        Parameter(help="bank:pcr=hex, one that it may have no longer.", negative=""),
    ] = (),
    options: Acting = ACTING,
) -> None:
    """Add reference values to a pool's policy before an update, and take the old ones away after it."""
    async with operating(options) as (settings, database):
        row = await tpms.change_values(
            database,
            options.actor(settings),
            tenant,
            pool,
            add=[tpms.ReferenceValue.parse(text) for text in add],
            remove=[tpms.ReferenceValue.parse(text) for text in remove],
        )
    show_one(row | {"policy": Verbatim(json.loads(row["policy"]))}, options.form)


@policy.command(name="list")
async def list_policies(
    *,
    tenant: Annotated[str | None, Parameter(help="Only this tenant's.")] = None,
    options: Shown = SHOWN,
) -> None:
    """List the policies of pools."""
    async with operating(options) as (_, database):
        rows = await tpms.list_policies(database, tenant=tenant)
    said = [row | {"policy": Verbatim(row["policy"])} for row in rows]
    show_rows(said, ("tenant", "pool", "updated_at", "updated_by", "policy"), options.form)


@policy.command
async def delete(tenant: Tenant, pool: Pool, /, *, options: Acting = ACTING) -> None:
    """Take a pool's policy away: no TPM joins it then."""
    async with operating(options) as (settings, database):
        await tpms.delete_policy(database, options.actor(settings), tenant, pool)
    say(f"pool {tenant}/{pool} has no TPM policy")


def _read(path: Path) -> str:
    with path.open("rb") as file:
        content = file.read(_MAX_FILE_BYTES + 1)
    if len(content) > _MAX_FILE_BYTES:
        message = f"{path} is longer than {_MAX_FILE_BYTES} bytes"
        raise BadArgument(message)
    try:
        return content.decode()
    except UnicodeDecodeError:
        message = f"{path} is not UTF-8"
        raise BadArgument(message) from None


def _object(text: str) -> dict[str, Any]:
    try:
        found: object = json.loads(text)
    except ValueError as error:
        message = f"the policy is not JSON: {error}"
        raise BadArgument(message) from None
    if not isinstance(found, dict):
        message = "the policy is a JSON object"
        raise BadArgument(message)
    return cast("dict[str, Any]", found)
