"""Settings that every attestor has."""

from typing import Annotated

from watchword.schemas.ids import Role
from watchword.streams.settings.section import Names, Section, Split


class AttestorLimits(Section):
    """What one attestor may answer. A list that is left out allows all; an empty list allows nothing."""

    tenants: Names | None = None
    """Tenants that it may admit into."""

    pools: Names | None = None
    """Pools that it may admit into."""

    sites: Names | None = None
    """Sites that it may admit into; an admission without a site is always within."""

    roles: Annotated[tuple[Role, ...], Split] | None = None
    """Roles that it may return."""

    kinds: Names | None = None
    """Kinds of commands that its nodes may be allowed."""

    unsafe_unrestricted_kinds: bool = False
    """Whether it may leave its nodes' kinds unrestricted: then whoever may send commands may send all."""
