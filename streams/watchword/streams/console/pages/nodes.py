"""Nodes: found by whatever names a machine, looked at with all that happened to them, and changed."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from starlette.responses import Response

from watchword.handlers.attestor import Subject
from watchword.handlers.errors import BadArgument
from watchword.handlers.operators.nodes import STATES, node_id
from watchword.handlers.operators.reclaims import ReclaimOrder
from watchword.handlers.operators.standing import SeenNode
from watchword.handlers.store.operators import Row
from watchword.streams.console.api.nodes import CHANGES, Which
from watchword.streams.console.forms import one, seen_version
from watchword.streams.console.pages import commands
from watchword.streams.console.site import Door
from watchword.streams.console.visit import Visit

_PAGE = 50
_DONE = {
    "evict": "evicted",
    "retire": "retired",
    "delete": "deleted",
    "ban": "banned",
    "unban": "unbanned",
}
_HOURS = (1, 24, 168, 720)


async def show(visit: Visit) -> Response:
    """The list."""
    given = Which.model_validate({"limit": _PAGE, **visit.query})
    rows = await visit.desk.list_nodes(given.wanted(), given.limit)
    return visit.page(
        "nodes.html",
        title="Nodes",
        rows=rows,
        given=given,
        states=STATES,
        older=visit.address("/nodes", after=rows[-1]["id"]) if len(rows) == given.limit else None,
    )


async def show_one(visit: Visit) -> Response:
    """One node."""
    node = await visit.desk.show_node(visit.request.path_params["id"])
    grants = await visit.desk.list_reclaims(node["id"], None, _PAGE, all_too=True)
    return visit.page(
        "node.html",
        title="A node",
        node=node,
        grants=grants,
        events=timeline(node),
        verbs=_possible(visit, node["state"]),
        hours=_HOURS,
        kinds=commands.tellable(node, visit.office.kinds),
        waits=commands.HOURS,
    )


async def change(visit: Visit) -> Response:
    """Evict, retire, delete, ban or unban the node, as it was seen."""
    node = node_id(visit.request.path_params["id"])
    verb, version = one(visit.form, "verb"), seen_version(visit.form)
    if verb not in CHANGES:
        message = "what is to be done cannot be read: nothing was done"
        raise BadArgument(message)
    await CHANGES[verb](visit.desk, [SeenNode(node, version)], one(visit.form, "why"))
    return visit.see(f"/nodes/{node}", done=_DONE[verb])


async def grant(visit: Visit) -> Response:
    """Let a machine have the node back."""
    node = node_id(visit.request.path_params["id"])
    hours = one(visit.form, "hours")
    if hours not in {str(each) for each in _HOURS}:
        message = "how long cannot be read: nothing was done"
        raise BadArgument(message)
    order = ReclaimOrder(
        node=node,
        attestor=one(visit.form, "attestor"),
        subject=Subject(one(visit.form, "kind"), one(visit.form, "value")),
        expires_in=timedelta(hours=int(hours)),
    )
    await visit.desk.grant_reclaim(order, one(visit.form, "why"))
    return visit.see(f"/nodes/{node}", done="granted")


async def take_back(visit: Visit) -> Response:
    """Take a reclaim grant back."""
    row = await visit.desk.revoke_reclaim(node_id(one(visit.form, "grant")), one(visit.form, "why"))
    return visit.see(f"/nodes/{row['node_id']}", done="taken-back")


def timeline(node: Row) -> Sequence[dict[str, Any]]:
    """Return what happened to a node, newest first: from the audit log, and the ends of its certificates."""
    events: list[dict[str, Any]] = [
        {
            "at": row["at"],
            "what": row["action"],
            "who": row["who"],
            "why": row["why"],
            "detail": row["detail"],
        }
        for row in node["audit"]
    ]
    events += [
        {
            "at": certificate["revoked_at"],
            "what": "certificate revoked",
            "who": "",
            "why": certificate["revoked_why"],
            "detail": {"serial": certificate["serial"].hex()},
        }
        for certificate in node["certificates"]
        if certificate["revoked_at"] is not None
    ]

    def when(event: dict[str, Any]) -> datetime:
        at: datetime = event["at"]
        return at

    return sorted(events, key=when, reverse=True)


def _possible(visit: Visit, state: str) -> list[tuple[str, str]]:
    """Return what can be done to a node in its state, with what it means."""
    if not visit.access.may("admin"):
        return []
    living = state in {"adopting", "active"}
    found: list[tuple[str, str]] = []
    if living:
        found.append(("evict", "Its certificates are revoked. It has to attest again."))
    if living or state == "evicted":
        found.append(("retire", "Out of service for good. What it used up stays used up."))
        if visit.access.is_root:
            found.append(("ban", "Nothing that was proven of it lets it join again, as any node."))
    if state == "banned" and visit.access.is_root:
        found.append(("unban", "Its bans end. It has to attest again."))
    if state != "deleted":
        found.append(("delete", "As retire, from any state: for what should never have been."))
    return found


DOORS = (
    Door("GET", "/nodes", show),
    Door("GET", "/nodes/{id}", show_one),
    Door("POST", "/nodes/{id}/change", change),
    Door("POST", "/nodes/{id}/reclaim", grant),
    Door("POST", "/nodes/{id}/take-back", take_back),
)
