"""Joins that wait: what is proven beside what is only claimed, and the decision about one or many."""

from collections.abc import Sequence
from uuid import UUID

from starlette.responses import Response

from watchword.handlers.errors import BadArgument, Conflict, NotFound
from watchword.handlers.operators.nodes import node_id
from watchword.handlers.operators.requests import MAX_TOGETHER, Seen
from watchword.handlers.store.operators import Row
from watchword.streams.console.api.requests import Which
from watchword.streams.console.forms import one
from watchword.streams.console.site import Door
from watchword.streams.console.visit import Visit

_PAGE = 20
LENGTHS = (_PAGE, 100, MAX_TOGETHER)
"""Of a page: at most what is decided together."""
STATES = ("pending", "approved", "rejected", "expired", "consumed", "all")


async def show(visit: Visit) -> Response:
    """The list."""
    query = visit.query
    is_all_chosen = query.pop("choose", "") == "all"
    given = Which.model_validate({"limit": _PAGE, **query})
    rows = await visit.desk.list_requests(given.wanted(), given.limit)
    counts = await visit.desk.show_overview(given.tenant)
    return visit.page(
        "waiting.html",
        title="Waiting joins",
        rows=rows,
        given=given,
        states=STATES,
        total=counts["waiting"],
        is_all_chosen=is_all_chosen,
        lengths=LENGTHS,
        older=visit.address("/waiting", after=rows[-1]["id"], choose=None)
        if len(rows) == given.limit
        else None,
    )


async def show_one(visit: Visit) -> Response:
    """One join with its history."""
    (row,) = await visit.desk.show_requests([node_id(visit.request.path_params["id"])])
    return visit.page("waiting_one.html", title="A join that waits", row=row)


async def decide(visit: Visit) -> Response:
    """Approve or reject what was chosen, as it was seen."""
    seen = [_seen(text) for text in visit.form.get("seen", ())]
    if not seen:
        message = "nothing was chosen: nothing was done"
        raise BadArgument(message)
    comment, decision = one(visit.form, "comment"), one(visit.form, "decision")
    if decision not in {"approve", "reject"}:
        message = "approve or reject"
        raise BadArgument(message)
    act = visit.desk.approve if decision == "approve" else visit.desk.reject
    try:
        await act(seen, comment)
    except Conflict as error:
        return visit.page(
            "conflict.html",
            status=409,
            title="Nothing was done",
            detail=str(error),
            rows=await _as_now(visit, [chosen.id for chosen in seen]),
            seen={chosen.id: chosen.version for chosen in seen},
        )
    done = "approved" if decision == "approve" else "rejected"
    return visit.see_again("/waiting", done=done)


async def _as_now(visit: Visit, ids: Sequence[UUID]) -> list[Row]:
    try:
        return await visit.desk.show_requests(ids)
    except NotFound:
        return []


def _seen(text: str) -> Seen:
    number, _, version = text.partition(":")
    if not version.isascii() or not version.isdigit() or len(version) > 9:  # noqa: PLR2004 - an integer
        message = "what was chosen cannot be read: nothing was done"
        raise BadArgument(message)
    return Seen(node_id(number), int(version))


DOORS = (
    Door("GET", "/waiting", show),
    Door("POST", "/waiting/decide", decide),
    Door("GET", "/waiting/{id}", show_one),
)
