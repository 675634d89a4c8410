"""The deployment as a whole: how it is doing, and what operators have done."""

from typing import Annotated

from pydantic import Field

from watchword.handlers.store.lookups import AuditFilter
from watchword.handlers.store.operators import Row
from watchword.streams.console.api.operation import (
    Asked,
    Given,
    Limit,
    Operation,
    Page,
    Short,
    page,
)
from watchword.streams.console.api.shapes import AUDIT, OVERVIEW

OF_ALL = "the lag is the whole deployment's"


class OfTenant(Given):
    """Of which tenant; all that the caller may see if none is named."""

    tenant: Short | None = None


class WhichAudit(Given):
    """Which rows of the audit log, and which page."""

    who: Short | None = None
    action: Short | None = None
    target: Short | None = None
    before: Annotated[int | None, Field(ge=0, lt=2**63)] = None
    limit: Limit = 100


async def _overview(asked: Asked, given: OfTenant) -> Row:
    counts = await asked.desk.show_overview(given.tenant)
    if not asked.desk.access.is_root:
        return counts | {"lag_records": None, "lag_problem": OF_ALL}
    lag = await asked.office.lag()
    return counts | {"lag_records": lag.records, "lag_problem": lag.problem}


async def _audit(asked: Asked, given: WhichAudit) -> Page:
    wanted = AuditFilter(
        who=given.who, action=given.action, target=given.target, before=given.before
    )
    return page(await asked.desk.list_audit(wanted, given.limit), given.limit)


OPERATIONS = (
    Operation(
        id="showOverview",
        method="GET",
        path="/overview",
        summary="Counts, and the last hour",
        role="viewer",
        answers=OVERVIEW,
        given=OfTenant,
        run=_overview,
    ),
    Operation(
        id="listAudit",
        method="GET",
        path="/audit",
        summary="The audit log, newest first; for operators of the whole deployment",
        role="viewer",
        answers=AUDIT,
        is_page=True,
        given=WhichAudit,
        run=_audit,
    ),
)
