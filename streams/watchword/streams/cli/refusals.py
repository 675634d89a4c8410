"""`watchword refusals list|tail`: from our own table, so it works when the SIEM is down."""

import asyncio
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Annotated

from cyclopts import App, Parameter

from watchword.handlers.errors import BadArgument
from watchword.handlers.operators import refusals
from watchword.handlers.store.operators import RefusalFilter
from watchword.streams.cli.acting import operating
from watchword.streams.cli.durations import moment
from watchword.streams.cli.options import SHOWN, Shown
from watchword.streams.cli.output import say, show_lines, show_rows

app = App(name="refusals", help="Machines that were refused, and why.")

_COLUMNS = ("occurred_at", "tenant", "attestor", "reason", "type", "request_id", "published")
_SHA256_BYTES = 32
_REST_S = 0.5

Tenant = Annotated[str | None, Parameter(help="Only of this tenant's stream.")]
Attestor = Annotated[str | None, Parameter(help="Only of this attestor; `join` is the core.")]
Reason = Annotated[str | None, Parameter(help="Only of this reason, the part after the colon.")]


@app.command(name="list")
async def list_(  # noqa: PLR0913 - each narrows
    *,
    since: Annotated[str, Parameter(help="RFC 3339, or so long ago: 30m, 24h, 7d.")] = "24h",
    until: Annotated[str | None, Parameter(help="Up to here, without it.")] = None,
    tenant: Tenant = None,
    attestor: Attestor = None,
    reason: Reason = None,
    csr: Annotated[str | None, Parameter(help="SHA-256 of the CSR, hex.")] = None,
    hardware_key: Annotated[
        str | None, Parameter(help="SHA-256 of the claimed hardware key, hex.")
    ] = None,
    request: Annotated[
        str | None, Parameter(help="The request's id, or SHA-256 of its bytes, hex.")
    ] = None,
    before: Annotated[
        str | None, Parameter(help="TIME,ID of the last row of the page before.")
    ] = None,
    limit: Annotated[int, Parameter(help="Length of a page, at most 1000.")] = 100,
    options: Shown = SHOWN,
) -> None:
    """List refusals, newest first; filters compose."""
    now = datetime.now(UTC)
    is_digest = request is not None and len(request) == _SHA256_BYTES * 2
    wanted = RefusalFilter(
        since=moment(since, now),
        until=None if until is None else moment(until, now),
        tenant=tenant,
        attestor=attestor,
        reason=reason,
        csr_sha256=_digest(csr),
        hardware_key_sha256=_digest(hardware_key),
        request_id=None if is_digest else request,
        request_sha256=_digest(request) if is_digest else None,
        before=None if before is None else _position(before, now),
    )
    async with operating(options) as (_, database):
        rows = await refusals.list_refusals(database, wanted, limit=limit)
    show_rows(rows, _COLUMNS, options.form)
    if len(rows) == limit:
        last = rows[-1]
        say(f"there may be more: --before {last['occurred_at'].isoformat()},{last['id']}")


@app.command
async def tail(
    *,
    tenant: Tenant = None,
    attestor: Attestor = None,
    reason: Reason = None,
    options: Shown = SHOWN,
) -> None:
    """Follow refusals as they are recorded, until Ctrl-C; one JSON object a line with --output jsonl."""
    async with operating(options) as (_, database):
        looks = refusals.tail_refusals(database, tenant=tenant, attestor=attestor, reason=reason)
        async with aclosing(looks):
            await anext(looks)
            say("following; Ctrl-C ends it")
            async for rows in looks:
                if options.form == "table":
                    show_lines(rows, _COLUMNS)
                else:
                    show_rows(rows, _COLUMNS, "jsonl")
                if not rows:
                    await asyncio.sleep(_REST_S)


def _digest(text: str | None) -> bytes | None:
    if text is None:
        return None
    try:
        found = bytes.fromhex(text)
    except ValueError:
        found = b""
    if len(found) != _SHA256_BYTES:
        message = "a SHA-256 has 64 hex digits"
        raise BadArgument(message)
    return found


def _position(text: str, now: datetime) -> tuple[datetime, int]:
    at, _, number = text.rpartition(",")
    if not number.isdigit():
        message = "--before TIME,ID, as the page before said"
        raise BadArgument(message)
    return moment(at, now), int(number)
