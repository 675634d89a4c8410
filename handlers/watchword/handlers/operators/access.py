"""What an operator may: one role, in one tenant or in the whole deployment.

What is outside an operator's tenant does not exist for them: `NotFound`, in the words that a thing which
is not there gets. What is inside and asks for a higher role is `Denied`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeVar, get_args

from watchword.handlers.errors import Denied, NotFound
from watchword.schemas.ids import ROOT

OperatorRole = Literal["viewer", "approver", "admin"]
"""Each may what those before it may: look; decide on joins that wait; everything else."""

ROLES: Final[tuple[OperatorRole, ...]] = get_args(OperatorRole)

Id = TypeVar("Id")


@dataclass(frozen=True, slots=True)
class Access:
    """Who acts, and what they may. `scope` is a tenant, or `root` for the whole deployment."""

    who: str
    scope: str
    role: OperatorRole

    @property
    def is_root(self) -> bool:
        """Tell whether everything is inside."""
        return self.scope == ROOT

    def may(self, role: OperatorRole) -> bool:
        """Tell whether the role is high enough."""
        return ROLES.index(self.role) >= ROLES.index(role)

    def need(self, role: OperatorRole) -> None:
        """Raise `Denied` unless the role is high enough."""
        if not self.may(role):
            message = f"this needs the role {role}; yours is {self.role}"
            raise Denied(message)

    def need_root(self, what: str) -> None:
        """Raise `NotFound` for what belongs to no tenant, unless the whole deployment is inside."""
        if not self.is_root:
            message = f"no {what} here"
            raise NotFound(message)

    def narrowed(self, tenant: str | None) -> str | None:
        """Return the tenant that a list is narrowed to, None for all; raises `NotFound` for one outside."""
        if self.is_root or tenant == self.scope:
            return tenant
        if tenant is None:
            return self.scope
        message = f"no tenant {tenant}"
        raise NotFound(message)

    def check_inside(self, what: str, ids: Sequence[Id], tenants: Mapping[Id, str]) -> None:
        """Raise `NotFound` for ids that are not there or belong to a tenant outside, in the same words."""
        if missing := [str(one) for one in ids if not self._covers(tenants, one)]:
            message = f"no {what} {', '.join(missing)}"
            raise NotFound(message)

    def _covers(self, tenants: Mapping[Id, str], one: Id) -> bool:
        return one in tenants and (self.is_root or tenants[one] == self.scope)
