"""Joins that wait for an operator."""

from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field

from watchword.handlers.operators.nodes import node_id
from watchword.handlers.operators.requests import MAX_TOGETHER, Seen
from watchword.handlers.store.approvals import RequestFilter
from watchword.handlers.store.operators import Row
from watchword.streams.console.api.operation import (
    Asked,
    Given,
    Limit,
    Operation,
    Page,
    Short,
    Why,
    page,
)
from watchword.streams.console.api.shapes import DECIDED, REQUEST, REQUEST_IN_FULL

State = Literal["pending", "approved", "rejected", "expired", "consumed", "all"]


class Which(Given):
    """Which joins, and which page."""

    state: State = "pending"
    tenant: Short | None = None
    site: Short | None = None
    pool: Short | None = None
    attestor: Short | None = None
    csr: Annotated[
        Short | None,
        Field(description="The beginning of its CSR's SHA-256, as the agent prints it"),
    ] = None
    after: UUID | None = None
    limit: Limit = 100

    def wanted(self) -> RequestFilter:
        """Return the filter."""
        return RequestFilter(
            state=None if self.state == "all" else self.state,
            tenant=self.tenant,
            site=self.site,
            attestor=self.attestor,
            after=self.after,
            pool=self.pool,
            csr=self.csr,
        )


class SeenRequest(Given):
    """A request as it was seen."""

    id: UUID
    version: Annotated[int, Field(ge=1, lt=2**31)]


class Decision(Given):
    """Which requests, as they were seen, and why; all of them or none."""

    requests: Annotated[list[SeenRequest], Field(min_length=1, max_length=MAX_TOGETHER)]
    comment: Why = ""

    def seen(self) -> list[Seen]:
        """Return the requests as the handlers take them."""
        return [Seen(one.id, one.version) for one in self.requests]


async def _list(asked: Asked, given: Which) -> Page:
    return page(await asked.desk.list_requests(given.wanted(), given.limit), given.limit)


async def _show(asked: Asked, given: Given) -> Row:
    del given
    (row,) = await asked.desk.show_requests([node_id(asked.path["id"])])
    return row


async def _approve(asked: Asked, given: Decision) -> Page:
    return Page(await asked.desk.approve(given.seen(), given.comment))


async def _reject(asked: Asked, given: Decision) -> Page:
    return Page(await asked.desk.reject(given.seen(), given.comment))


OPERATIONS = (
    Operation(
        id="listRequests",
        method="GET",
        path="/requests",
        summary="Joins that wait, oldest first",
        role="viewer",
        answers=REQUEST,
        is_page=True,
        given=Which,
        run=_list,
    ),
    Operation(
        id="showRequest",
        method="GET",
        path="/requests/{id}",
        summary="What an approval grants, what is proven, and what is only claimed",
        role="viewer",
        answers=REQUEST_IN_FULL,
        run=_show,
    ),
    Operation(
        id="approveRequests",
        method="POST",
        path="/requests/approve",
        summary="Let machines join with exactly what was seen; 409 if another operator was first",
        role="approver",
        answers=DECIDED,
        is_page=True,
        given=Decision,
        run=_approve,
    ),
    Operation(
        id="rejectRequests",
        method="POST",
        path="/requests/reject",
        summary="Refuse machines that wait, or take back approvals that were not used; needs a comment",
        role="approver",
        answers=DECIDED,
        is_page=True,
        given=Decision,
        run=_reject,
    ),
)
