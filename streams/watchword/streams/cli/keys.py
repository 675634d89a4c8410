"""`watchword keys init|show|pin|list|prepare|activate|retire`."""

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from watchword.handlers.crypto.keyfiles import create_keys, load_worker_keys
from watchword.handlers.crypto.worker_keys import WorkerKeys
from watchword.handlers.errors import BadArgument
from watchword.handlers.operators.keys import Kind
from watchword.streams.cli.acting import ACTING, Acting
from watchword.streams.cli.durations import duration
from watchword.streams.cli.key_changes import KeyChanges
from watchword.streams.cli.options import SHOWN, Shown
from watchword.streams.cli.output import say, show_one, show_rows

app = App(name="keys", help="The keys of the deployment.")

Directory = Annotated[
    Path | None, Parameter(help="Where the keys are; `keys.directory` if not given.")
]


@app.command
def init(
    *,
    directory: Directory = None,
    trust_domain: Annotated[
        str | None, Parameter(help="`deployment.trust_domain` if not given; it stays for good.")
    ] = None,
    options: Shown = SHOWN,
) -> None:
    """Make whatever keys are missing, and print the pin. Harmless when they are there already."""
    settings = options.settings()
    domain = trust_domain or settings.deployment.trust_domain
    if domain is None:
        message = "no trust domain: give --trust-domain or the setting deployment.trust_domain"
        raise BadArgument(message)
    where = directory or settings.keys.directory
    keys = create_keys(where, domain, datetime.now(UTC))
    show_one(_said(keys, where), options.form)


@app.command
def show(*, directory: Directory = None, options: Shown = SHOWN) -> None:
    """Print the pin that agents are given and what keys there are; never a key."""
    where = directory or options.settings().keys.directory
    show_one(_said(load_worker_keys(where), where), options.form)


@app.command
def pin(*, directory: Directory = None, options: Shown = SHOWN) -> None:
    """Print the pin alone: what `watchword agent bootstrap --pin` is given."""
    where = directory or options.settings().keys.directory
    print(load_worker_keys(where).pin)  # noqa: T201 - the result


_COLUMNS = (
    "kind",
    "kid",
    "version",
    "state",
    "prepared_at",
    "activated_at",
    "ends_at",
    "needed_until",
    "where",
)

Kinds = Annotated[Kind, Parameter(help="Which keys.")]


@app.command(name="list")
def list_(*, options: Shown = SHOWN) -> None:
    """List the keys: prepared, active, and retired ones that something may still need; never a key."""
    rows = KeyChanges(options.settings(), ACTING).rows()
    show_rows([asdict(row) for row in rows], _COLUMNS, options.form)


@app.command(name="prepare")
async def prepare_(
    kind: Kinds,
    /,
    *,
    in_hsm: Annotated[
        str | None,
        Parameter(help="Make the CA's key in the hardware module, under this label."),
    ] = None,
    options: Acting = ACTING,
) -> None:
    """Make the key that will follow the active one. Nothing uses it yet; workers load it without a restart."""
    changes = KeyChanges(options.settings(), options)
    kid = await changes.prepare(kind, in_hsm)
    if kind in ("signing", "ca"):
        say("now run `watchword trust publish`: agents must know it before it is activated")
    _show(changes, kid, options)


@app.command(name="activate")
async def activate_(
    kind: Kinds,
    /,
    *,
    overlap: Annotated[
        str | None,
        Parameter(help="For how long the one before may be needed, such as 2h; see the guide."),
    ] = None,
    options: Acting = ACTING,
) -> None:
    """Use the prepared key from now on. The one before is retired: it opens and verifies, and does nothing new."""
    changes = KeyChanges(options.settings(), options)
    kid, _ = await changes.activate(kind, None if overlap is None else duration(overlap))
    if kind != "challenge":
        say("now run `watchword trust publish`")
    if kind == "ca":
        say("and `watchword crl publish`: each CA has a CRL of its own")
    _show(changes, kid, options)


@app.command(name="retire")
async def retire_(
    kind: Kinds,
    kid: Annotated[str, Parameter(help="Its name, as `keys list` shows it.")],
    /,
    *,
    compromised: Annotated[
        bool,
        Parameter(help="Do not ask who still needs it: somebody else has it.", negative=""),
    ] = False,
    options: Acting = ACTING,
) -> None:
    """Delete a key that is prepared, or a retired one that nothing needs any more."""
    changes = KeyChanges(options.settings(), options)
    await changes.retire(kind, kid, is_compromised=compromised)
    if kind != "challenge":
        say("now run `watchword trust publish`")
    if kind == "ca":
        say("and `watchword crl publish`")
    list_(options=options)


def _show(changes: KeyChanges, kid: str, options: Shown) -> None:
    row = next(row for row in changes.rows() if row.kid == kid)
    show_one(asdict(row), options.form)


def _said(keys: WorkerKeys, directory: Path) -> dict[str, object]:
    return {
        "directory": directory,
        "trust_domain": keys.trust_domain,
        "version": keys.version,
        "pin": keys.pin,
        "decryption": [
            {"kid": key.kid, "not_before": key.not_before, "not_after": key.not_after}
            for key in keys.decryption
        ],
    }
