"""Names for values that must not be mixed up."""

from typing import Literal, NewType
from uuid import UUID

AttestorId = NewType("AttestorId", str)
"""The id of an attestor: a DNS label. `join`, `renew` and `command` are reserved for the core."""

TenantId = NewType("TenantId", str)
"""A tenant's slug: a DNS label. `root` is the tenant of whoever has authenticated as nobody."""

NodeId = NewType("NodeId", UUID)

TokenId = NewType("TokenId", str)
"""The public half of a join token; the secret half is stored nowhere."""

UnverifiedPayload = NewType("UnverifiedPayload", bytes)
"""Evidence as the machine sent it. Only an attestor may look inside."""

Role = Literal["node", "site", "ramdisk"]

ROLES: frozenset[Role] = frozenset(("node", "site", "ramdisk"))

ROOT = TenantId("root")

JOIN = AttestorId("join")
"""The core's own: its refusals and objections are under this id."""

RESERVED_ATTESTOR_IDS = frozenset((JOIN, "renew", "command"))
