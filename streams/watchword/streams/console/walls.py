"""What stands around every answer: only our own host is answered for, and browsers are told how little a page may do."""

from collections.abc import Collection
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from watchword.streams.console.problems import Told, problem

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)

HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not `no-referrer`: then browsers would name the origin of a form as null.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
_STRICT: Final = {"Strict-Transport-Security": "max-age=31536000"}


class Walls:
    """An application with the headers of every answer, for requests to one of its hosts alone."""

    def __init__(self, app: ASGIApp, *, hosts: Collection[str], is_secure: bool) -> None:
        """Name the hosts, each with its port where that is not the scheme's."""
        self._app = app
        self._hosts = hosts
        self._headers = HEADERS | (_STRICT if is_secure else {})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer."""

        async def send_walled(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers[name] = value
            await send(message)

        if Headers(scope=scope).get("Host", "") not in self._hosts:
            answer = problem(Told(400, "This is not a host of this console."))
            await answer(scope, receive, send_walled)
            return
        await self._app(scope, receive, send_walled)
