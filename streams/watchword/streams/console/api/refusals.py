"""Machines that were refused, and why."""

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Annotated

from pydantic import Field

from watchword.handlers.errors import BadArgument
from watchword.handlers.operators import refusals
from watchword.handlers.operators.refusals import Dimension, Format, Reasons, RefusalFilter
from watchword.handlers.store.operators import Row
from watchword.streams.console.api.operation import (
    Asked,
    Digest,
    Given,
    Limit,
    Lines,
    Moment,
    Operation,
    Page,
    Short,
)
from watchword.streams.console.api.shapes import REFUSAL, REFUSAL_IN_FULL, TOP

DAY = timedelta(days=1)
_FIRST_YEAR, _LAST_YEAR = 2000, 2199


class Which(Given):
    """Which refusals; without a beginning, those of the last day."""

    since: Moment | None = None
    until: Moment | None = None
    tenant: Short | None = None
    attestor: Short | None = None
    reason: Short | None = None
    csr: Digest | None = None
    hardware_key: Digest | None = None
    tried: Digest | None = None
    address: Short | None = None
    request_id: Short | None = None
    request_sha256: Digest | None = None

    def filter(
        self, *, until: datetime | None = None, before: tuple[datetime, int] | None = None
    ) -> RefusalFilter:
        """Return the filter as the handlers take it."""
        return RefusalFilter(
            since=self.since or datetime.now(UTC) - DAY,
            until=self.until if until is None else until,
            tenant=self.tenant,
            attestor=self.attestor,
            reason=self.reason,
            csr_sha256=_bytes(self.csr),
            hardware_key_sha256=_bytes(self.hardware_key),
            tried_sha256=_bytes(self.tried),
            address=self.address,
            request_id=self.request_id,
            request_sha256=_bytes(self.request_sha256),
            before=before,
        )


class Listed(Which):
    """Which, and which page."""

    before: Annotated[Short | None, Field(description="TIME,ID: `next` of the page before")] = None
    limit: Limit = 100


class Counted(Which):
    """Which, and by what they are counted."""

    by: Dimension = "reason"
    limit: Limit = 10


class Exported(Which):
    """Which, and in what form."""

    format: Format = "native"


async def _list(asked: Asked, given: Listed) -> Page:
    before = None if given.before is None else position(given.before)
    rows = await asked.desk.list_refusals(given.filter(before=before), given.limit)
    if len(rows) < given.limit:
        return Page(rows)
    return Page(rows, position_of(rows[-1]))


def position_of(row: Row) -> str:
    """Return what a page that ends with this row is followed by."""
    return f"{row['occurred_at'].isoformat()},{row['id']}"


def position(text: str) -> tuple[datetime, int]:
    """Return where a page begins; raises `BadArgument`."""
    at, _, number = text.rpartition(",")
    try:
        found = datetime.fromisoformat(at), int(number)
    except ValueError:
        found = None
    if (
        found is None
        or found[0].tzinfo is None
        or not _FIRST_YEAR <= found[0].year <= _LAST_YEAR
        or not 0 <= found[1] < 2**63
    ):
        message = "before: TIME,ID, as `next` of the page before said"
        raise BadArgument(message)
    return found


async def _show(asked: Asked, given: Given) -> Row:
    del given
    named = refusals.named_by(asked.path["name"])
    return await asked.desk.show_refusal(named, asked.reasons, datetime.now(UTC))


async def _top(asked: Asked, given: Counted) -> Page:
    return Page(await asked.desk.top_refusals(given.filter(), given.by, given.limit))


async def _export(asked: Asked, given: Exported) -> Lines:
    until = given.until or datetime.now(UTC)
    pages = asked.desk.export_refusals(given.filter(until=until), until)

    return Lines(export_lines(pages, given.format, asked.reasons))


async def export_lines(
    pages: AsyncGenerator[list[Row]], form: Format, reasons: Reasons
) -> AsyncGenerator[str]:
    """Yield each refusal as one line."""
    async with aclosing(pages):
        async for rows in pages:
            for row in rows:
                found = refusals.written(row, form, reasons)
                yield (found if isinstance(found, str) else json.dumps(found)) + "\n"


def _bytes(digest: str | None) -> bytes | None:
    return None if digest is None else bytes.fromhex(digest)


OPERATIONS = (
    Operation(
        id="listRefusals",
        method="GET",
        path="/refusals",
        summary="Refusals, newest first",
        role="viewer",
        answers=REFUSAL,
        is_page=True,
        given=Listed,
        run=_list,
    ),
    Operation(
        id="topRefusals",
        method="GET",
        path="/refusals/top",
        summary="Refusals counted by reason, machine, credential, address …",
        role="viewer",
        answers=TOP,
        is_page=True,
        given=Counted,
        run=_top,
    ),
    Operation(
        id="exportRefusals",
        method="GET",
        path="/refusals/export",
        summary="Every refusal that fits, oldest first, one a line: native, OCSF, ECS or CEF",
        role="viewer",
        answers={},
        is_lines=True,
        given=Exported,
        run=_export,
    ),
    Operation(
        id="showRefusal",
        method="GET",
        path="/refusals/{name}",
        summary="One refusal, by the id of its event or request, the SHA-256 of its bytes, or its number",
        role="viewer",
        answers=REFUSAL_IN_FULL,
        run=_show,
    ),
)
