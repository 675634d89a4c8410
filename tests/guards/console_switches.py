"""What switches the guards of the API and the console off: patches of a running interpreter, never loaded by production."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from watchword.handlers.operators import sessions
from watchword.handlers.operators.access import Access
from watchword.handlers.store import access
from watchword.streams.console import site
from watchword.streams.console.session_cookies import SessionCookies


def _replace(owner: Any, name: str, value: object) -> None:  # noqa: ANN401 - a module or class
    """Put something else in a guard's place."""
    setattr(owner, name, value)


def tenants_have_no_walls() -> None:
    """Let every operator see what belongs to other tenants."""

    def inside(*_: object) -> None:
        return None

    def narrowed(self: Access, tenant: str | None) -> str | None:
        del self
        return tenant

    _replace(Access, "check_inside", inside)
    _replace(Access, "narrowed", narrowed)


def roles_are_names() -> None:
    """Let every role do everything."""

    def need(*_: object) -> None:
        return None

    _replace(Access, "need", need)


def forms_are_from_anywhere() -> None:
    """Take every form for one of ours."""

    def ours(*_: object) -> bool:
        return True

    def checked(*_: object) -> None:
        return None

    _replace(SessionCookies, "is_form_token", ours)
    _replace(site, "check_origin", checked)


def nobody_is_taken_out() -> None:
    """Let certificates in whose operator was revoked."""

    async def certificates(connection: Any, ids: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - as they came
        rows = await connection.fetch("SELECT * FROM operator_tokens WHERE id = ANY($1)", ids)
        return [dict(row) for row in rows]

    _replace(access, "certificates", certificates)


def cookies_are_enough() -> None:
    """Take a certificate's session from whoever has its cookie."""
    real: Any = sessions.find_session

    async def find_session(*arguments: Any) -> Any:  # noqa: ANN401 - as they came
        found = await real(*arguments)
        return None if found is None else replace(found, certificate=None)

    _replace(site, "find_session", find_session)


CONSOLE_SWITCHES: dict[str, Callable[[], None]] = {
    "tenants_have_no_walls": tenants_have_no_walls,
    "roles_are_names": roles_are_names,
    "forms_are_from_anywhere": forms_are_from_anywhere,
    "nobody_is_taken_out": nobody_is_taken_out,
    "cookies_are_enough": cookies_are_enough,
}
