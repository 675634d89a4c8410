"""`watchword refusals list|show|tail|top|export`: from our own table, so it works when the SIEM is down."""

import asyncio
import json
import sys
from collections.abc import Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from cyclopts import App, Parameter

from watchword.handlers.errors import BadArgument
from watchword.handlers.operators import refusals
from watchword.handlers.operators.refusals import Dimension, Format, Reasons, RefusalFilter
from watchword.streams.cli.acting import operating
from watchword.streams.cli.at_desk import REACHING, Reaching, at_desk
from watchword.streams.cli.digests import SHA256_BYTES, typed_digest
from watchword.streams.cli.durations import moment
from watchword.streams.cli.options import SHOWN, Shown
from watchword.streams.cli.output import say, show_lines, show_one, show_rows
from watchword.streams.cli.remote_desk import RemoteDesk
from watchword.streams.settings import Settings
from watchword.streams.wiring.attestors import installed_attestors

app = App(name="refusals", help="Machines that were refused, and why.")

_COLUMNS = ("occurred_at", "tenant", "attestor", "reason", "type", "request_id", "published")
_TOP = ("what", "recorded", "published", "distinct_csrs", "distinct_hardware_keys", "last_time")
_REST_S = 0.5


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Which:
    """Which refusals; filters compose."""

    tenant: str | None = None
    """Only of this tenant's stream."""

    attestor: str | None = None
    """Only of this attestor; `join` is the core."""

    reason: str | None = None
    """Only of this reason, the part after the colon."""

    csr: str | None = None
    """SHA-256 of the CSR, hex."""

    hardware_key: str | None = None
    """SHA-256 of the claimed hardware key, hex."""

    tried: str | None = None
    """SHA-256 that stands for the credential that was tried, hex: `triedSha256` of an event."""

    address: str | None = None
    """The address that a gateway saw; of an IPv6 one the beginning of its /64."""

    def narrowed(
        self, since: datetime, until: datetime | None = None, request: str | None = None
    ) -> RefusalFilter:
        """Return the filter; raises `BadArgument` for what is no digest."""
        is_digest = request is not None and len(request) == SHA256_BYTES * 2
        return RefusalFilter(
            since=since,
            until=until,
            tenant=self.tenant,
            attestor=self.attestor,
            reason=self.reason,
            csr_sha256=typed_digest(self.csr),
            hardware_key_sha256=typed_digest(self.hardware_key),
            tried_sha256=typed_digest(self.tried),
            address=self.address,
            request_id=None if is_digest else request,
            request_sha256=typed_digest(request) if is_digest else None,
        )


ALL = Which()

Since = Annotated[str, Parameter(help="RFC 3339, or so long ago: 30m, 24h, 7d.")]
Until = Annotated[str | None, Parameter(help="Up to here, without it.")]
Request = Annotated[str | None, Parameter(help="The request's id, or SHA-256 of its bytes, hex.")]
Form = Annotated[
    Format | None,
    Parameter(
        name="--format",
        help="One event a line: `native` as on the topic, or OCSF, ECS, CEF. Instead of --output.",
    ),
]


@app.command(name="list")
async def list_(
    *,
    since: Since = "24h",
    until: Until = None,
    which: Which = ALL,
    request: Request = None,
    before: Annotated[
        str | None, Parameter(help="TIME,ID of the last row of the page before.")
    ] = None,
    limit: Annotated[int, Parameter(help="Length of a page, at most 1000.")] = 100,
    form: Form = None,
    options: Reaching = REACHING,
) -> None:
    """List refusals, newest first."""
    now = datetime.now(UTC)
    wanted = which.narrowed(
        moment(since, now), None if until is None else moment(until, now), request
    )
    wanted = replace(wanted, before=None if before is None else _position(before, now))
    _here_alone(options, form)
    async with at_desk(options) as desk:
        rows = await desk.list_refusals(wanted, limit)
    if form is None:
        show_rows(rows, _COLUMNS, options.form)
    else:
        _write(rows, form, _reasons(options.settings()))
    if len(rows) == limit:
        last = rows[-1]
        say(f"there may be more: --before {_moment(last['occurred_at'])},{last['id']}")


@app.command
async def show(
    name: Annotated[
        str, Parameter(help="The event's id, the request's id or SHA-256, or the number in a list.")
    ],
    *,
    form: Form = None,
    options: Reaching = REACHING,
) -> None:
    """Show one refusal: what its reason means, what to do, and what else is known of the machine."""
    named = refusals.named_by(name)
    _here_alone(options, form)
    async with at_desk(options) as desk:
        if isinstance(desk, RemoteDesk):
            row, reasons = await desk.show_refusal(name), Reasons()
        else:
            reasons = _reasons(options.settings())
            row = await desk.show_refusal(named, reasons, datetime.now(UTC))
    if form is None:
        show_one(row, options.form)
    else:
        _write([row], form, reasons)


@app.command
async def tail(*, which: Which = ALL, form: Form = None, options: Shown = SHOWN) -> None:
    """Follow refusals as they are recorded, until Ctrl-C; one JSON object a line with --output jsonl."""
    wanted = which.narrowed(datetime.now(UTC))
    async with operating(options) as (settings, database):
        reasons = _reasons(settings)
        looks = refusals.tail_refusals(database, wanted)
        async with aclosing(looks):
            await anext(looks)
            say("following; Ctrl-C ends it")
            async for rows in looks:
                if form is not None:
                    _write(rows, form, reasons)
                elif options.form == "table":
                    show_lines(rows, _COLUMNS)
                else:
                    show_rows(rows, _COLUMNS, "jsonl")
                if not rows:
                    await asyncio.sleep(_REST_S)


@app.command
async def top(
    *,
    by: Annotated[Dimension, Parameter(help="What is counted.")] = "reason",
    since: Since = "24h",
    until: Until = None,
    which: Which = ALL,
    limit: Annotated[int, Parameter(help="How many, at most 1000.")] = 10,
    options: Reaching = REACHING,
) -> None:
    """Count refusals by reason, attestor, tenant, machine, credential, address or worker; most first."""
    now = datetime.now(UTC)
    wanted = which.narrowed(moment(since, now), None if until is None else moment(until, now))
    async with at_desk(options) as desk:
        rows = await desk.top_refusals(wanted, by, limit)
    show_rows(rows, _TOP, options.form)


@app.command
async def export(
    *,
    form: Annotated[
        Format, Parameter(name="--format", help="`native` as on the topic, or OCSF, ECS, CEF.")
    ] = "native",
    since: Since = "24h",
    until: Until = None,
    which: Which = ALL,
    request: Request = None,
    options: Reaching = REACHING,
) -> None:
    """Write every refusal that fits, oldest first, one a line: also those that the bound kept off the topic.

    Each has the id that its event has on the topic: what a SIEM has already, it can drop.
    """
    now = datetime.now(UTC)
    end = now if until is None else moment(until, now)
    wanted = which.narrowed(moment(since, now), request=request)
    count = 0
    async with at_desk(options) as desk:
        if isinstance(desk, RemoteDesk):
            async for line in desk.export_lines(replace(wanted, until=end), form):
                sys.stdout.write(line)
                count += 1
            say(f"{count} exported")
            return
        reasons = _reasons(options.settings())
        async with aclosing(desk.export_refusals(wanted, end)) as pages:
            async for rows in pages:
                _write(rows, form, reasons)
                count += len(rows)
    say(f"{count} exported")


def _here_alone(options: Reaching, form: Format | None) -> None:
    if options.server is not None and form is not None:
        message = "--format goes with --server in `refusals export` alone"
        raise BadArgument(message)


def _moment(at: datetime | str) -> str:
    """Return where the next page begins; what came from afar is of a whole millisecond, and none of that is passed over."""
    if isinstance(at, datetime):
        return at.isoformat()
    return (datetime.fromisoformat(at) + timedelta(milliseconds=1)).isoformat()


def _write(rows: Iterable[Mapping[str, Any]], form: Format, reasons: Reasons) -> None:
    for row in rows:
        found = refusals.written(dict(row), form, reasons)
        # ASCII only, as all of our JSON: no text of a machine may move a terminal's cursor.
        line = found if isinstance(found, str) else json.dumps(found)
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _reasons(settings: Settings) -> Reasons:
    return Reasons(installed_attestors(settings))


def _position(text: str, now: datetime) -> tuple[datetime, int]:
    at, _, number = text.rpartition(",")
    if not number.isdigit():
        message = "--before TIME,ID, as the page before said"
        raise BadArgument(message)
    return moment(at, now), int(number)
