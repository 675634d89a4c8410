"""`watchword keys init|show|rotate`."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from watchword.handlers.crypto.keyfiles import create_keys, load_worker_keys
from watchword.handlers.crypto.keyrotation import rotate_challenge, rotate_decryption
from watchword.handlers.crypto.worker_keys import WorkerKeys
from watchword.handlers.errors import BadArgument
from watchword.streams.cli.options import SHOWN, Shown
from watchword.streams.cli.output import say, show_one

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


@app.command
def rotate(
    kind: Annotated[Literal["decryption", "challenge"], Parameter(help="Which keys.")],
    /,
    *,
    directory: Directory = None,
    options: Shown = SHOWN,
) -> None:
    """Make a new key beside the old one, which ends with an overlap; then restart workers and publish."""
    where = directory or options.settings().keys.directory
    now = datetime.now(UTC)
    if kind == "decryption":
        rotate_decryption(where, now=now)
        say("restart the workers, then run `watchword trust publish`")
    else:
        rotate_challenge(where, now=now)
        say("restart the workers")
    show_one(_said(load_worker_keys(where), where), options.form)


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
