"""Join tokens: made, looked at, revoked. A new one is shown once, in the answer to the form that made it."""

from datetime import timedelta
from typing import Final

from starlette.responses import Response

from watchword.handlers.errors import BadArgument
from watchword.handlers.operators.tokens import TokenOrder
from watchword.schemas.ids import ROLES, Role
from watchword.streams.console.api.tokens import Which
from watchword.streams.console.forms import one
from watchword.streams.console.site import Door
from watchword.streams.console.visit import Visit

_PAGE: Final = 50
LIVES: Final = {
    "1": "an hour",
    "24": "a day",
    "168": "a week",
    "720": "30 days",
}
_MAX_DIGITS: Final = 7
_ROLES: Final[tuple[Role, ...]] = ("node", "site", "ramdisk")


async def show(visit: Visit) -> Response:
    """The list, and the form for a new one."""
    given = Which.model_validate({"limit": _PAGE, **visit.query})
    rows = await visit.desk.list_tokens(given.tenant, given.after, given.limit, spent_too=given.all)
    return visit.page(
        "tokens.html",
        title="Join tokens",
        rows=rows,
        given=given,
        lives=LIVES,
        roles=_ROLES,
        older=visit.address("/tokens", after=rows[-1]["id"]) if len(rows) == given.limit else None,
    )


async def create(visit: Visit) -> Response:
    """Make one and show it."""
    form = visit.form
    uses, life, role = one(form, "uses", "1"), one(form, "life"), one(form, "role")
    if not uses.isascii() or not uses.isdigit() or len(uses) > _MAX_DIGITS or life not in LIVES:
        message = "uses and life cannot be read: no token was made"
        raise BadArgument(message)
    found: list[Role] = [each for each in ROLES if each == role]
    if not found:
        message = "role cannot be read: no token was made"
        raise BadArgument(message)
    order = TokenOrder(
        tenant=one(form, "tenant"),
        pool=one(form, "pool"),
        site=one(form, "site") or None,
        role=found[0],
        uses=int(uses),
        expires_in=timedelta(hours=int(life)),
        allowed_kinds=tuple(one(form, "kinds").replace(",", " ").split()),
    )
    created = await visit.desk.create_token(order, one(form, "why"))
    return visit.page("token_made.html", title="A new token", row=created.row, text=created.text)


async def revoke(visit: Visit) -> Response:
    """Let nobody join with one any more."""
    await visit.desk.revoke_token(one(visit.form, "token"), one(visit.form, "why"))
    return visit.see_again("/tokens", done="revoked")


DOORS = (
    Door("GET", "/tokens", show),
    Door("POST", "/tokens", create),
    Door("POST", "/tokens/revoke", revoke),
)
