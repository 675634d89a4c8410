"""Options of commands that say where machines go, and what their nodes may be told."""

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from watchword.handlers.errors import BadArgument
from watchword.handlers.operators.grants import Grant
from watchword.handlers.store.anchor_rows import ListFilter
from watchword.schemas.ids import Role
from watchword.streams.cli.acting import Acting
from watchword.streams.cli.options import Shown


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Granting(Acting):
    """For commands that say what machines are granted."""

    site: str | None = None
    """Their site."""

    role: Role = "node"
    """Their role."""

    kind: Annotated[tuple[str, ...], Parameter(negative="")] = ()
    """A kind of command their nodes may be sent; again for more."""

    all_kinds: Annotated[bool, Parameter(negative="")] = False
    """Do not restrict the kinds. Without it, none but --kind."""

    def grant(self, tenant: str, pool: str) -> Grant:
        """Return what is granted; raises `BadArgument`."""
        if self.all_kinds and self.kind:
            message = "--kind and --all-kinds exclude each other"
            raise BadArgument(message)
        return Grant(
            tenant=tenant,
            pool=pool,
            site=self.site,
            role=self.role,
            allowed_kinds=None if self.all_kinds else self.kind,
        )


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Listing(Shown):
    """For commands that list what was granted."""

    tenant: str | None = None
    """Only this tenant's."""

    all: Annotated[bool, Parameter(negative="")] = False
    """Also what was revoked or has expired."""

    after: str | None = None
    """The key that the page before ended with."""

    limit: int = 100
    """Length of a page, at most 1000."""

    def filter(self) -> ListFilter:
        """Return which rows."""
        return ListFilter(
            tenant=self.tenant, after=self.after, unusable_too=self.all, limit=self.limit
        )


GRANTING = Granting()
LISTING = Listing()


def pair(text: str) -> tuple[str, str]:
    """Return both sides of `name=value`; raises `BadArgument`."""
    name, equals, value = text.partition("=")
    if not equals:
        message = f"expect: name=value, not {text!r}"
        raise BadArgument(message)
    return name, value
