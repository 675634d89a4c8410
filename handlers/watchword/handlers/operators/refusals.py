"""Refusals from our own table: what the security team asks for when the SIEM is down."""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import NAMESPACE_URL, UUID, uuid5

from watchword.handlers.errors import BadArgument, NotFound
from watchword.handlers.join.refusal_events import refusal_event
from watchword.handlers.reasons import find_reason
from watchword.handlers.rows import RefusalRow
from watchword.handlers.store import refusals as store
from watchword.handlers.store.connection import Database
from watchword.handlers.store.refusals import Dimension, Named, RefusalFilter, Row
from watchword.schemas.cef import to_cef
from watchword.schemas.ecs import to_ecs
from watchword.schemas.ocsf import to_ocsf
from watchword.schemas.reasons import Reason, is_well_formed

__all__ = [
    "Dimension",
    "Format",
    "Reasons",
    "RefusalFilter",
    "export_refusals",
    "list_refusals",
    "named_by",
    "show_refusal",
    "tail_refusals",
    "top_refusals",
    "written",
]

MAX_PAGE = 1000
NO_SUCH = "no such refusal; it may be past its retention"
_LOOK_BACK = timedelta(days=1)
_SHA256_DIGITS = 64
_FIRST_SLICE = timedelta(minutes=1)
_SHORTEST_SLICE = timedelta(seconds=1)
_LONGEST_SLICE = timedelta(days=1)

Format = Literal["native", "ocsf", "ecs", "cef"]
"""`native` is what `security.join.refused` has, with the same ids."""

Event = dict[str, Any]

_FORMS: Mapping[Format, Callable[[Event], Event | str]] = {
    "native": lambda event: event,
    "ocsf": to_ocsf,
    "ecs": to_ecs,
    "cef": to_cef,
}


class Reasons:
    """Our reasons, and those that strangers' attestors declare."""

    def __init__(self, attestors: Iterable[object] = ()) -> None:
        """Know these attestors besides our own."""
        self._declared: dict[tuple[str, str], Reason] = {
            (str(getattr(attestor, "id", "")), reason.name): reason
            for attestor in attestors
            for reason in getattr(attestor, "reasons", ())
            if is_well_formed(reason)
        }

    def find(self, attestor: str, name: str) -> Reason:
        """Return the reason; of one that is not known here its name is all there is."""
        found = find_reason(attestor, name) or self._declared.get((attestor, name))
        return found or Reason(
            name, "", "medium", "A reason of an attestor that is not installed here."
        )


def written(row: Row, form: Format, reasons: Reasons) -> Event | str:
    """Return a row in a form: a JSON object, or a line of CEF."""
    return _FORMS[form](_event(row, reasons))


def named_by(text: str) -> Named:
    """Return what a name means: an event's id, a request's id, the SHA-256 of its bytes, or a row's number.

    Raises:
        BadArgument: it is none of these.
    """
    if text.isascii() and text.isdigit() and len(text) <= 18:  # noqa: PLR2004 - a bigint
        return Named(number=int(text))
    try:
        if len(text) == _SHA256_DIGITS:
            return Named(request_sha256=bytes.fromhex(text))
        return Named(event_id=UUID(text))
    except ValueError:
        message = "a refusal is named by its event's id, its request's id or SHA-256, or its number"
        raise BadArgument(message) from None


async def list_refusals(
    database: Database, wanted: RefusalFilter, *, limit: int = 100
) -> list[Row]:
    """Return a page of refusals, newest first; the next begins `before` the last row's time and id.

    Raises:
        BadArgument: the page is too long.
    """
    _check_limit(limit)
    async with database.transaction() as connection:
        return await store.list_refusals(connection, wanted, limit)


async def show_refusal(database: Database, named: Named, reasons: Reasons, now: datetime) -> Row:
    """Return one refusal with what its reason means, and what else is known of the machine.

    Raises:
        NotFound: there is none of that name, or it is past its retention.
    """
    async with database.transaction() as connection:
        row = await store.find(connection, named)
        if row is None and named.event_id is not None:
            row = await store.find(connection, Named(request_id=str(named.event_id)))
        if row is None:
            raise NotFound(NO_SUCH)
        csr = row["csr_sha256"]
        nodes = [] if csr is None else await store.nodes_of_csr(connection, csr)
        same = await store.same_machine(connection, row, now - _LOOK_BACK)
    reason = reasons.find(row["attestor"], row["reason"])
    return row | {
        "refusal": f"{row['attestor']}:{row['reason']}",
        "code": reason.code,
        "severity": reason.severity,
        "attack": reason.attack,
        "sentence": reason.sentence,
        "what_to_do": reason.what_to_do,
        "refused_in_a_day": same,
        "nodes": nodes,
    }


async def top_refusals(
    database: Database, wanted: RefusalFilter, by: Dimension, *, limit: int = 10
) -> list[Row]:
    """Return what has most refusals; raises `BadArgument` for too many."""
    _check_limit(limit)
    async with database.transaction() as connection:
        return await store.top(connection, wanted, by, limit)


async def export_refusals(
    database: Database, wanted: RefusalFilter, until: datetime
) -> AsyncGenerator[list[Row]]:
    """Yield all refusals before a time that fit, oldest first, page by page, whoever reads however slowly.

    No transaction is open while a page is read. The time is cut in slices, long where there is little: a page
    of a slice is sorted, and a page of a month would sort the month.
    """
    begin, width = wanted.since, _FIRST_SLICE
    while begin < until:
        end = min(begin + width, until)
        count = 0
        after: tuple[datetime, int] | None = None
        is_more = True
        while is_more:
            async with database.transaction() as connection:
                slice_ = replace(wanted, since=begin, until=end)
                rows = await store.page(connection, slice_, after, MAX_PAGE)
            if rows:
                yield rows
                count += len(rows)
                after = (rows[-1]["occurred_at"], rows[-1]["id"])
            is_more = len(rows) == MAX_PAGE
        begin = end
        if count > MAX_PAGE:
            width = max(width / 2, _SHORTEST_SLICE)
        elif count < MAX_PAGE / 4:
            width = min(width * 2, _LONGEST_SLICE)


async def tail_refusals(database: Database, wanted: RefusalFilter) -> AsyncGenerator[list[Row]]:
    """Yield at each look what has been recorded since the last one, oldest first; empty if nothing.

    The caller decides how long to rest between two looks. No refusal is passed over: what counts is
    when its transaction became visible, not when its row was numbered.
    """
    async with database.transaction() as connection:
        seen = await store.snapshot(connection)
    while True:
        async with database.transaction() as connection:
            until = await store.snapshot(connection)
            rows = await store.since(connection, seen, until, wanted)
        seen = until
        yield rows


def _check_limit(limit: int) -> None:
    if not 0 < limit <= MAX_PAGE:
        message = f"limit: 1 to {MAX_PAGE}"
        raise BadArgument(message)


def _event(row: Row, reasons: Reasons) -> Event:
    """Return the event of a row, as it was published or would have been."""
    recorded = RefusalRow(
        type=row["type"],
        attestor=row["attestor"],
        reason=row["reason"],
        tenant=row["tenant"],
        role=row["role"],
        request_sha256=row["request_sha256"],
        request_id=row["request_id"],
        csr_sha256=row["csr_sha256"],
        hardware_key_sha256=row["hardware_key_sha256"],
        topic=row["topic"],
        partition=row["partition"],
        offset=row["offset"],
        published=row["published"],
        event_id=row["event_id"] or _made_up_id(row),
        tried_sha256=row["tried_sha256"],
        address=row["address"],
    )
    reason = reasons.find(row["attestor"], row["reason"])
    event = refusal_event(recorded, reason, worker=row["worker"], at=row["occurred_at"])
    return event.model_dump(by_alias=True)


def _made_up_id(row: Row) -> UUID:
    """Return an id for a row of a release that kept none: the same at each export."""
    place = f"{row['topic']}/{row['partition']}/{row['offset']}/{row['request_sha256'].hex()}"
    return uuid5(NAMESPACE_URL, f"watchword:refusal:{place}")
