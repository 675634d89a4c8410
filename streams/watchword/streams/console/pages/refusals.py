"""Refusals: searched, counted, and looked at; every try by one key; and all of them for a file."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, get_args

from starlette.responses import Response, StreamingResponse

from watchword.handlers.operators import refusals
from watchword.handlers.operators.refusals import Dimension, Format, RefusalFilter
from watchword.streams.console.api.refusals import (
    Which,
    export_lines,
    position,
    position_of,
)
from watchword.streams.console.site import Door
from watchword.streams.console.visit import NO_STORE, Visit

_PAGE: Final = 50
PERIODS: Final = {"1h": "hour", "24h": "day", "7d": "week", "30d": "30 days"}
_LENGTHS: Final = {
    "1h": timedelta(hours=1),
    "24h": timedelta(days=1),
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
}

Period = Literal["1h", "24h", "7d", "30d"]
Group = Literal["reason", "attestor", "tenant", "hardware-key", "csr", "tried", "address", "worker"]
GROUPS: Final = {
    "reason": "reason",
    "attestor": "attestor",
    "hardware-key": "claimed hardware key",
    "csr": "CSR",
    "tried": "credential tried",
    "address": "address",
    "tenant": "tenant",
    "worker": "worker",
}


class Looked(Which):
    """What stands in the page's address."""

    period: Period = "24h"
    group: Group | None = None
    before: str | None = None


class Exported(Looked):
    """The same, and a form."""

    format: Format = "native"


async def show(visit: Visit) -> Response:
    """The list, or the counts of groups."""
    given = Looked.model_validate(visit.query)
    wanted = _filter(given)
    if given.group is not None:
        by: Dimension = given.group
        rows = await visit.desk.top_refusals(wanted, by, _PAGE)
        return visit.page(
            "refusals_grouped.html",
            title="Refusals",
            rows=rows,
            given=given,
            **_choices(),
        )
    rows = await visit.desk.list_refusals(wanted, _PAGE)
    older = None
    if len(rows) == _PAGE:
        older = visit.address("/refusals", before=position_of(rows[-1]))
    return visit.page(
        "refusals.html", title="Refusals", rows=rows, given=given, older=older, **_choices()
    )


async def show_one(visit: Visit) -> Response:
    """One refusal, with what its reason means and what to do."""
    named = refusals.named_by(visit.request.path_params["name"])
    row = await visit.desk.show_refusal(named, visit.office.reasons, datetime.now(UTC))
    return visit.page("refusal.html", title="A refusal", row=row)


async def export(visit: Visit) -> Response:
    """Every refusal that fits, one a line."""
    given = Exported.model_validate(visit.query)
    until = datetime.now(UTC)
    pages = visit.desk.export_refusals(replace(_filter(given), before=None), until)

    async def lines() -> AsyncIterator[str]:
        async with aclosing(export_lines(pages, given.format, visit.office.reasons)) as found:
            async for line in found:
                yield line

    name = f"refusals-{given.format}-{until:%Y%m%dT%H%M%SZ}"
    ending = "cef" if given.format == "cef" else "ndjson"
    headers = NO_STORE | {"Content-Disposition": f'attachment; filename="{name}.{ending}"'}
    return StreamingResponse(lines(), headers=headers, media_type="application/x-ndjson")


def _filter(given: Looked) -> RefusalFilter:
    before = None if given.before is None else position(given.before)
    found = given.filter(before=before)
    if given.since is None:
        return replace(found, since=datetime.now(UTC) - _LENGTHS[given.period])
    return found


def _choices() -> dict[str, Any]:
    return {"periods": PERIODS, "groups": GROUPS, "formats": get_args(Format)}


DOORS = (
    Door("GET", "/refusals", show),
    Door("GET", "/refusals/export", export),
    Door("GET", "/refusals/{name}", show_one),
)
