"""What the configuration lets an attestor return."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from watchword.handlers.attestor import Admission
from watchword.handlers.kinds import BUILT_IN, known_kind
from watchword.schemas.ids import ROLES, AttestorId, Role


@dataclass(frozen=True, slots=True)
class Limits:
    """`[attestors.<id>]`: None is no limit. Without a section an attestor may return nothing but what is here."""

    tenants: frozenset[str] | None = None
    pools: frozenset[str] | None = None
    sites: frozenset[str] | None = None
    roles: frozenset[Role] = ROLES
    kinds: frozenset[str] | None = None
    unrestricted_kinds: bool = False
    """Whether it may leave a node's kinds unrestricted."""


@dataclass(frozen=True, slots=True)
class JoinPolicy:
    """The limits of all attestors. One that has no section may return nothing."""

    attestors: Mapping[AttestorId, Limits] = field(default_factory=dict[AttestorId, Limits])
    registered_kinds: frozenset[str] = BUILT_IN

    def allows(self, attestor: AttestorId, admission: Admission) -> bool:
        """Tell whether this attestor may return this admission. No section means no."""
        limits = self.attestors.get(attestor)
        if limits is None:
            return False
        return (
            (limits.tenants is None or admission.tenant in limits.tenants)
            and (limits.pools is None or admission.pool in limits.pools)
            and (limits.sites is None or admission.site is None or admission.site in limits.sites)
            and admission.role in limits.roles
            and self._allows_kinds(limits, admission.allowed_kinds)
        )

    def _allows_kinds(self, limits: Limits, kinds: tuple[str, ...] | None) -> bool:
        if kinds is None:
            return limits.unrestricted_kinds
        return _are_known(kinds, self.registered_kinds) and (
            limits.kinds is None or limits.kinds.issuperset(kinds)
        )


@lru_cache(maxsize=64)  # what anchors and tokens allow is the same for many machines
def _are_known(kinds: tuple[str, ...], registered: frozenset[str]) -> bool:
    return all(known_kind(kind, registered) for kind in kinds)
