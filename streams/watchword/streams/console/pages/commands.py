"""Commands to nodes: what became of them, and the forms that send and cancel one. What they say is shown nowhere."""

from datetime import UTC, datetime, timedelta
from typing import Final

from starlette.responses import Response

from watchword.handlers.errors import BadArgument, Denied
from watchword.handlers.kinds import permits
from watchword.handlers.operators.commands import STATES, CommandOrder
from watchword.handlers.operators.nodes import node_id
from watchword.handlers.operators.standing import SeenNode
from watchword.handlers.store.operators import Row
from watchword.streams.console.api.commands import Which
from watchword.streams.console.forms import one, seen_version, text
from watchword.streams.console.site import Door
from watchword.streams.console.visit import Visit

_PAGE: Final = 50
HOURS: Final = (1, 24, 168, 720)
"""How long a command may wait."""


async def show(visit: Visit) -> Response:
    """The list."""
    given = Which.model_validate({"limit": _PAGE, **visit.query})
    rows = await visit.desk.list_commands(given.filter(), given.limit)
    return visit.page(
        "commands.html",
        title="Commands",
        rows=rows,
        given=given,
        states=STATES,
        older=visit.address("/commands", after=rows[-1].id) if len(rows) == given.limit else None,
    )


async def show_one(visit: Visit) -> Response:
    """One command, and the form that cancels it."""
    row = await visit.desk.show_command(node_id(visit.request.path_params["id"]))
    is_open = row.ended_at is None
    return visit.page("command.html", title="A command", row=row, is_open=is_open)


async def send(visit: Visit) -> Response:
    """Let a command wait for a node, as the node was seen."""
    form = visit.form
    hours = one(form, "hours")
    if hours not in {str(each) for each in HOURS}:
        message = "how long cannot be read: nothing was done"
        raise BadArgument(message)
    node = node_id(one(form, "node"))
    order = CommandOrder(
        seen=SeenNode(node, seen_version(form)),
        kind=one(form, "kind"),
        payload=text(form, "payload").encode(),
        expires_in=timedelta(hours=int(hours)),
    )
    try:
        row = await visit.desk.send_command(order, one(form, "why"))
    except Denied as error:
        if not visit.access.may("admin"):
            raise
        # That it was tried is on record: not "nothing was changed".
        return visit.page(
            "command_refused.html", status=403, title="Not sent", detail=str(error), node=node
        )
    return visit.see(f"/commands/{row.id}", done="sent")


async def cancel(visit: Visit) -> Response:
    """Keep a command from being handed out, as it was seen."""
    command = node_id(visit.request.path_params["id"])
    await visit.desk.cancel_command(command, seen_version(visit.form), one(visit.form, "why"))
    return visit.see(f"/commands/{command}", done="cancelled")


def tellable(node: Row, kinds: frozenset[str]) -> list[str]:
    """Return the registered kinds that a node may be told now, by its certificate that is in force."""
    if node["state"] not in {"adopting", "active"}:
        return []
    now = datetime.now(UTC)
    for certificate in node["certificates"]:
        is_in_force = certificate["is_current"] and certificate["revoked_at"] is None
        if is_in_force and certificate["not_after"] > now:
            allowed = certificate["allowed_kinds"]
            return sorted(kind for kind in kinds if permits(allowed, kind))
    return []


DOORS = (
    Door("GET", "/commands", show),
    Door("POST", "/commands", send),
    Door("GET", "/commands/{id}", show_one),
    Door("POST", "/commands/{id}/cancel", cancel),
)
