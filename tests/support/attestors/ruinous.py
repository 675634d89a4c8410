"""An attestor that ends its worker for some evidence: what an author's mistake, met by one machine, looks like."""

import re
import time

from watchword.handlers.attestor import (
    Admission,
    Deferral,
    Evidence,
    JoinContext,
    Role,
    TenantId,
)

_CHUNK = 32 * 1024 * 1024


class Ruinous:
    """Admits into `acme`, `web`; but for the payloads `block`, `regex` and `hog`."""

    id = "ruinous"
    version = "1"
    roles: frozenset[Role] = frozenset(("node",))

    async def verify(self, evidence: Evidence, context: JoinContext) -> Admission | Deferral:
        """Do what the payload says."""
        match evidence.payload:
            case b"block":
                time.sleep(3600)  # noqa: ASYNC251 - on purpose
            case b"regex":
                re.fullmatch(r"(a+)+b", "a" * 64)
            case b"hog":
                held: list[bytearray] = []
                while True:
                    held.append(bytearray(_CHUNK))
            case _:
                pass
        return Admission(TenantId("acme"), context.role, "web", allowed_kinds=())
