"""The audit log: who did what, to what, and why."""

from typing import Final

from starlette.responses import Response

from watchword.handlers.store.lookups import AuditFilter
from watchword.streams.console.api.whole import WhichAudit
from watchword.streams.console.site import Door
from watchword.streams.console.visit import Visit

_PAGE: Final = 100


async def show(visit: Visit) -> Response:
    """The page."""
    given = WhichAudit.model_validate({"limit": _PAGE, **visit.query})
    wanted = AuditFilter(
        who=given.who, action=given.action, target=given.target, before=given.before
    )
    rows = await visit.desk.list_audit(wanted, given.limit)
    return visit.page(
        "audit.html",
        title="Audit log",
        rows=rows,
        given=given,
        older=visit.address("/audit", before=rows[-1]["id"]) if len(rows) == given.limit else None,
    )


DOORS = (Door("GET", "/audit", show),)
