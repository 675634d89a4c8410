"""Ramdisks that a site's agent has booted and vouches for, and the desk that they are judged at, without a server."""

import json
from base64 import urlsafe_b64decode
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.support.contexts import Desk, run
from watchword.handlers.anchors import DiscoverySite
from watchword.handlers.attestor import Admission, Deferral, Evidence, Node, Subject
from watchword.handlers.attestors.discovery.evidence import sign_assertion
from watchword.handlers.attestors.discovery.verifier import DiscoveryAttestor
from watchword.handlers.crypto.jws import JwsSigner
from watchword.handlers.errors import Refused
from watchword.schemas.ids import AttestorId, NodeId, TenantId, UnverifiedPayload
from watchword.schemas.requests import Claims

KEY = JwsSigner("k1", Ed25519PrivateKey.from_private_bytes(bytes(32)))
PRODUCT = "4c4c4544-0043-3510-8052-b4c04f4e3332"
MACS = ("3cecef000001", "3cecef000002")
LOCAL = "02005e000001"
NAMES = (
    Subject("machine", f"acme/uuid:{PRODUCT}"),
    Subject("machine", "acme/mac:3cecef000001"),
    Subject("machine", "acme/mac:3cecef000002"),
)
SITE = DiscoverySite(
    kid="k1",
    public_key=KEY.public,
    tenant=TenantId("acme"),
    site="berlin",
    pool="metal",
    approval="unknown-machines",
    allowed_kinds=("diag.*", "agent.update", "disk.wipe"),
    expires_at=None,
    revoked=False,
)
GRANT = Admission(
    tenant=TenantId("acme"),
    role="ramdisk",
    pool="metal",
    site="berlin",
    bind=NAMES[0].digest,
    allowed_kinds=("diag.*", "disk.wipe"),
    subjects=(*NAMES, Subject("site-key", "k1")),
)
RAMDISK = NodeId(UUID(int=50))


def node(number: int = 50, **changes: Any) -> Node:  # noqa: ANN401 - any field
    """Return a living ramdisk of the site, read anew: no word of it is the same object as ours."""
    made = Node(
        id=NodeId(UUID(int=number)),
        tenant=TenantId("".join("acme")),
        pool="metal",
        site="".join("berlin"),
        role="".join("ramdisk"),  # type: ignore[arg-type]
        state="active",
        attestor=AttestorId("discovery"),
        node_key_uri=None,
        hardware_key=None,
    )
    return replace(made, **changes)


def _desk() -> Desk:
    """Return a desk at a whole second: assertions say milliseconds, and limits are met to the last of them."""
    made = Desk("discovery", "ramdisk")
    made.now = made.now.replace(microsecond=0)
    return made


@dataclass
class Boot:
    """A ramdisk that has booted, and the desk that it is judged at."""

    site: DiscoverySite | None = SITE
    desk: Desk = field(default_factory=_desk)
    macs: Sequence[str] = MACS
    said: dict[str, Any] = field(default_factory=dict[str, Any])
    payload: bytes | None = None
    uses: list[tuple[bytes, Any]] = field(default_factory=list[tuple[bytes, Any]])

    def asserted(self) -> bytes:
        """Return the site's word on this machine, signed, with what else is to be `said`."""
        said: dict[str, Any] = {
            "site": "berlin",
            "csr_sha256": self.desk.csr.sha256,
            "macs": self.macs,
            "product_uuid": PRODUCT.upper(),
            "bmc": "10.0.0.7",
            "expires_at": self.desk.now + timedelta(minutes=5),
        }
        return sign_assertion(KEY, **{**said, **self.said})

    def verdict(self) -> Admission | Deferral:
        """Have it judged; keep the uses that were staged."""
        if self.site is not None:
            approval = "".join(self.site.approval)
            self.desk.facts.sites[self.site.kid] = replace(self.site, approval=approval)
        self.payload = self.payload or self.asserted()
        context = self.desk.context()
        evidence = Evidence(UnverifiedPayload(self.payload), Claims())
        found = run(DiscoveryAttestor().verify(evidence, context))
        self.uses = context.staged.uses
        assert not context.staged.spends
        return found

    def refusal(self) -> Refused:
        """Have it judged, which has to refuse it; return how."""
        with pytest.raises(Refused) as caught:
            self.verdict()
        assert caught.value.attestor == "discovery"
        return caught.value

    def nonce(self) -> bytes:
        """Return the nonce of the word that was judged."""
        assert self.payload is not None
        body = self.payload.split(b".")[1]
        said = json.loads(urlsafe_b64decode(body + b"=" * (-len(body) % 4)))
        return bytes.fromhex(said["nonce"])

    def knows(self, *nodes: tuple[Node, Sequence[Subject]]) -> "Boot":
        """Have these nodes proven these names before; ids are read anew from each table."""
        for one, names in nodes:
            self.desk.facts.nodes_by_id[one.id] = one
            for name in names:
                ids = self.desk.facts.subjects.setdefault(name, [])
                ids.append(NodeId(UUID(int=one.id.int)))
        return self

    def bound(self, by: Subject = NAMES[0], number: int = 50) -> "Boot":
        """Have a node bound by a name."""
        self.desk.facts.bound[by.digest] = NodeId(UUID(int=number))
        return self


def known(names: Sequence[Subject] = NAMES, **changes: Any) -> Boot:  # noqa: ANN401 - any field
    """Return a machine whose ramdisk has been here, with these names of it."""
    return Boot().knows((node(**changes), names)).bound()
