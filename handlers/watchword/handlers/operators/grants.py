"""What operators write down as granted: a place, a role, kinds of commands; and what they narrow it by."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

from watchword.handlers.crypto.named_secrets import ID_CHARACTERS, is_id
from watchword.handlers.errors import BadArgument
from watchword.handlers.hardware_ids import canonical_mac
from watchword.handlers.join.expectations import EXPECTABLE
from watchword.handlers.kinds import BUILT_IN, kinds_problem
from watchword.handlers.operators.places import label
from watchword.handlers.store.anchor_rows import PlaceRow, Row
from watchword.schemas.ids import ROLES, Role
from watchword.schemas.times import rfc3339

MAX_PAGE = 1000
_MAX_EXPECTED = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Where machines go, and what their nodes may be told. `allowed_kinds` None is unrestricted."""

    tenant: str
    pool: str
    site: str | None = None
    role: Role = "node"
    allowed_kinds: tuple[str, ...] | None = ()

    def check(self, registered: Collection[str] = BUILT_IN) -> None:
        """Raise `BadArgument` for the first thing that is wrong."""
        label(self.tenant, "tenant")
        label(self.pool, "pool")
        if self.site is not None:
            label(self.site, "site")
        if self.role not in ROLES:
            message = f"role: one of {', '.join(sorted(ROLES))}"
            raise BadArgument(message)
        if problem := kinds_problem(self.allowed_kinds, registered):
            raise BadArgument(problem)

    def row(self) -> PlaceRow:
        """Return the columns of a row."""
        return PlaceRow(
            tenant=self.tenant,
            pool=self.pool,
            site=self.site,
            role=self.role,
            allowed_kinds=None if self.allowed_kinds is None else list(self.allowed_kinds),
        )


@dataclass(frozen=True, slots=True)
class Created:
    """The row of a secret of ours, and its text, which is nowhere else and does not show in `repr`."""

    row: Row
    text: str = field(repr=False)


def check_life(expires_in: timedelta | None, what: str) -> None:
    """Raise `BadArgument` for something that has expired already; None never expires."""
    if expires_in is not None and expires_in <= timedelta(0):
        message = f"{what} that has expired already is of no use"
        raise BadArgument(message)


def check_secret_id(text: str, whose: str) -> None:
    """Raise `BadArgument` unless this is the public id of a secret. Not repeated: whoever pastes all of it pastes the secret."""
    if not is_id(text):
        message = f"{whose} id is its {ID_CHARACTERS} characters between the two dots"
        raise BadArgument(message)


def granted(row: Row) -> dict[str, object]:
    """Return what an event and the audit row tell of a row that grants something."""
    expires_at = row["expires_at"]
    return {
        "pool": row["pool"],
        "site": row["site"],
        "role": row["role"],
        "expiresAt": None if expires_at is None else rfc3339(expires_at),
        "allowedKinds": row["allowed_kinds"],
    }


def check_expect(expect: Mapping[str, str]) -> None:
    """Raise `BadArgument` if machines cannot be held against this."""
    for name, value in expect.items():
        if name not in EXPECTABLE:
            message = f"expect: one of {', '.join(sorted(EXPECTABLE))}, not {name!r}"
            raise BadArgument(message)
        if not value or len(value) > _MAX_EXPECTED or not value.isprintable():
            message = f"expect {name}: 1 to {_MAX_EXPECTED} printable characters"
            raise BadArgument(message)
    if "mac" in expect and canonical_mac(expect["mac"]) is None:
        message = "expect mac: twelve hex digits, such as 52:54:00:12:34:56"
        raise BadArgument(message)
    if "node" in expect:
        try:
            UUID(expect["node"])
        except ValueError:
            message = "expect node: the id of a node (a UUID)"
            raise BadArgument(message) from None


def check_limit(limit: int) -> None:
    """Raise `BadArgument` for a page that is empty or too long."""
    if not 0 < limit <= MAX_PAGE:
        message = f"limit: 1 to {MAX_PAGE}"
        raise BadArgument(message)
