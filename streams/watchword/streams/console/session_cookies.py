"""The session's cookie, signed, and the token that shows that a form is ours.

The cookie holds the session's secret, whose hash is in PostgreSQL, and a signature over it: what was made
up is turned away without a look into the database.
"""

import hmac
from base64 import urlsafe_b64encode
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import sha256
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

_COOKIE: Final = b"watchword session cookie v1\0"
_FORM: Final = b"watchword form v1\0"


@dataclass(frozen=True, slots=True)
class SessionCookies:
    """Writes and reads the cookie. Under https its name has the prefix that ties it to this host (RFC 6265bis, 4.1.3.2)."""

    key: bytes = field(repr=False)
    is_secure: bool

    @property
    def name(self) -> str:
        """The cookie's name."""
        return "__Host-watchword" if self.is_secure else "watchword"

    def put(self, response: Response, text: str, life: timedelta) -> None:
        """Give the visitor a session."""
        response.set_cookie(
            self.name,
            f"{text}.{self._sign(_COOKIE, text)}",
            max_age=int(life.total_seconds()),
            path="/",
            secure=self.is_secure,
            httponly=True,
            samesite="lax",
        )

    def take_away(self, response: Response) -> None:
        """Take the visitor's session."""
        response.delete_cookie(
            self.name, path="/", secure=self.is_secure, httponly=True, samesite="lax"
        )

    def read(self, request: Request) -> str | None:
        """Return the text of a cookie that we signed; None if there is none."""
        text, _, signature = request.cookies.get(self.name, "").rpartition(".")
        if not text or not self._is_signed(_COOKIE, text, signature):
            return None
        return text

    def form_token(self, session_id: str) -> str:
        """Return what each form of a session carries."""
        return self._sign(_FORM, session_id)

    def is_form_token(self, session_id: str, token: str) -> bool:
        """Tell whether a form came from a page of this session."""
        return self._is_signed(_FORM, session_id, token)

    def _sign(self, purpose: bytes, text: str) -> str:
        mac = hmac.digest(self.key, purpose + text.encode(), sha256)
        return urlsafe_b64encode(mac).decode().rstrip("=")

    def _is_signed(self, purpose: bytes, text: str, signature: str) -> bool:
        return hmac.compare_digest(self._sign(purpose, text).encode(), signature.encode())
