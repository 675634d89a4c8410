"""One request for a page: who asks, what they gave, and how they are answered."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from watchword.handlers.operators.access import Access
from watchword.handlers.operators.desk import Desk
from watchword.handlers.operators.sessions import Session
from watchword.streams.console.forms import Form, one
from watchword.streams.console.office import Office
from watchword.streams.console.rendering import render

NO_STORE: Final = {"Cache-Control": "no-store"}

_SECTIONS: Final = (
    ("/", "Overview"),
    ("/waiting", "Waiting"),
    ("/nodes", "Nodes"),
    ("/commands", "Commands"),
    ("/refusals", "Refusals"),
    ("/attestors", "Attestors"),
    ("/tokens", "Tokens"),
)
_OF_ROOT: Final = (("/audit", "Audit"),)

DONE: Final = {
    "approved": "Approved. The machines come again by themselves, and join then.",
    "rejected": "Rejected.",
    "evicted": "Evicted. It has to attest again.",
    "retired": "Retired.",
    "deleted": "Deleted.",
    "banned": "Banned, by everything that was proven of it alone.",
    "unbanned": "The bans have ended. It has to attest again.",
    "granted": "Granted. Whoever proves it becomes this node, once.",
    "taken-back": "The grant is taken back.",
    "revoked": "Revoked.",
    "sent": "Sent. It waits until the node asks.",
    "cancelled": "Cancelled. It is handed out no more.",
}
"""What a page may say of an act that was done before it, by the word in its address."""


@dataclass(frozen=True, slots=True)
class Visit:
    """A request of somebody who is signed in."""

    request: Request
    office: Office
    session: Session
    form: Form
    form_token: str

    @property
    def access(self) -> Access:
        """What the visitor may."""
        return self.session.access

    @property
    def desk(self) -> Desk:
        """The visitor's desk."""
        return self.office.desk(self.access)

    @property
    def query(self) -> dict[str, str]:
        """What stands in the address, without what is empty and without what is the page's own."""
        pairs = self.request.query_params.items()
        return {name: value for name, value in pairs if value.strip() and name != "done"}

    def address(self, path: str, **changes: object) -> str:
        """Return an address with the filters of this one; a change to None takes one away."""
        values = {**self.query, **changes}
        kept = {name: str(value) for name, value in values.items() if value is not None}
        return f"{path}?{urlencode(kept)}" if kept else path

    def page(self, template: str, *, status: int = 200, **values: Any) -> Response:  # noqa: ANN401 - of a template
        """Answer with a page."""
        return HTMLResponse(
            render(
                template,
                {
                    "visit": self,
                    "access": self.access,
                    "sections": _SECTIONS + (_OF_ROOT if self.access.is_root else ()),
                    "here": "/" + self.request.url.path.split("/")[1],
                    "form_token": self.form_token,
                    "now": datetime.now(UTC),
                    "done": DONE.get(self.request.query_params.get("done", "")),
                    **values,
                },
            ),
            status,
            NO_STORE,
        )

    def see_again(self, path: str, done: str) -> Response:
        """Answer that it is done, and show the list again with the filters that it had."""
        back = urlsplit(one(self.form, "back"))
        kept = dict(parse_qsl(back.query)) if back.path == path else {}
        return see(path, {**kept, "done": done})

    def see(self, path: str, **query: str) -> Response:
        """Answer that what was asked for is done, and where to look now."""
        return see(path, query)


def see(path: str, query: Mapping[str, str] | None = None) -> Response:
    """Answer with another page (303, so that it is fetched and nothing is sent twice)."""
    address = f"{path}?{urlencode(query)}" if query else path
    return RedirectResponse(address, 303, NO_STORE)
