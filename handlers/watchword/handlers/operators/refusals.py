"""Refusals from our own table: what the security team asks for when the SIEM is down."""

from collections.abc import AsyncGenerator

from watchword.handlers.errors import BadArgument
from watchword.handlers.store import operators
from watchword.handlers.store.connection import Database
from watchword.handlers.store.operators import RefusalFilter, Row

__all__ = ["RefusalFilter", "list_refusals", "tail_refusals"]

MAX_PAGE = 1000


async def list_refusals(
    database: Database, wanted: RefusalFilter, *, limit: int = 100
) -> list[Row]:
    """Return a page of refusals, newest first; the next begins `before` the last row's time and id.

    Raises:
        BadArgument: the page is too long.
    """
    if not 0 < limit <= MAX_PAGE:
        message = f"limit: 1 to {MAX_PAGE}"
        raise BadArgument(message)
    async with database.transaction() as connection:
        return await operators.list_refusals(connection, wanted, limit)


async def tail_refusals(
    database: Database,
    *,
    tenant: str | None = None,
    attestor: str | None = None,
    reason: str | None = None,
) -> AsyncGenerator[list[Row]]:
    """Yield at each look what has been recorded since the last one, oldest first; empty if nothing.

    The caller decides how long to rest between two looks. No refusal is passed over: what counts is
    when its transaction became visible, not when its row was numbered.
    """
    async with database.transaction() as connection:
        seen = await operators.snapshot(connection)
    while True:
        async with database.transaction() as connection:
            until = await operators.snapshot(connection)
            rows = await operators.refusals_since(
                connection, seen, until, tenant=tenant, attestor=attestor, reason=reason
            )
        seen = until
        yield rows
