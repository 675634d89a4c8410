"""Typed reads for verifiers; what was read is noted, so that a change of it is seen.

Keys are checked at the seam, because one NUL or lone surrogate would fail the query for all.
"""

import re
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from watchword.handlers.anchors import (
    CloudAccount,
    DiscoverySite,
    Image,
    TpmEndorsement,
    TpmPolicy,
)
from watchword.handlers.attestor import (
    Admission,
    Node,
    NodeCertificate,
    Staged,
    Subject,
    Token,
    is_digest,
)
from watchword.handlers.crypto.profile import TENANT
from watchword.handlers.join.approvals import snapshot_of
from watchword.handlers.join.loading import Loader
from watchword.handlers.join.rows import NodeRow
from watchword.schemas.ids import AttestorId, NodeId, TenantId

TOKEN_ID = re.compile(r"[a-z0-9]{16}")

HARDWARE_KEY = "@hardware-key"
"""The `attestor` under which proven hardware keys are bound; no attestor can have that id."""

_KID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ACCOUNT = re.compile(r"[A-Za-z0-9:._-]{1,128}")
_PROVIDERS = frozenset(("aws", "gcp", "azure"))


def digest(subject: bytes) -> bytes:
    """Return 32 bytes, or raise `ValueError`: the author's bug."""
    if not is_digest(subject):
        message = "a subject is 32 bytes"
        raise ValueError(message)
    return subject


class Tokens:
    """Implements `attestor.TokenReads` and notes what was read."""

    __slots__ = ("_loader", "_reads")

    def __init__(self, loader: Loader, reads: set[tuple[str, object]]) -> None:
        """Read through the loader."""
        self._loader = loader
        self._reads = reads

    async def get(self, token_id: str) -> Token | None:
        """See `attestor.TokenReads`."""
        if not TOKEN_ID.fullmatch(token_id):
            return None  # a TypeError if it is no text: the author's bug
        self._reads.add(("token", token_id))
        return await self._loader.get(self._loader.tokens, token_id)


class Nodes:
    """Implements `attestor.NodeReads` and notes what was read."""

    __slots__ = ("_loader", "_reads")

    def __init__(self, loader: Loader, reads: set[tuple[str, object]]) -> None:
        """Read through the loader."""
        self._loader = loader
        self._reads = reads

    async def row(self, node_id: UUID) -> NodeRow | None:
        """Return the whole row, for the core."""
        if not isinstance(node_id, UUID):  # pyright: ignore[reportUnnecessaryIsInstance]
            message = "a node id is a UUID"
            raise TypeError(message)
        self._reads.add(("node", node_id))
        return await self._loader.get(self._loader.nodes, node_id)

    async def get(self, node_id: UUID) -> Node | None:
        """See `attestor.NodeReads`."""
        row = await self.row(node_id)
        if row is None:
            return None
        return Node(
            id=NodeId(row.id),
            tenant=TenantId(row.tenant),
            pool=row.pool,
            site=row.site,
            role=row.role,
            state=row.state,
            attestor=AttestorId(row.attestor),
            node_key_uri=row.node_key_uri,
            hardware_key=row.hardware_key,
        )

    async def certificate(self, tbs_sha256: bytes) -> NodeCertificate | None:
        """See `attestor.NodeReads`."""
        digest(tbs_sha256)
        self._reads.add(("certificate", tbs_sha256))
        row = await self._loader.get(self._loader.certificates, tbs_sha256)
        if row is None:
            return None
        return NodeCertificate(
            node_id=NodeId(row.node_id),
            spki_sha256=row.spki_sha256,
            not_before=row.not_before,
            not_after=row.not_after,
            allowed_kinds=row.allowed_kinds,
            node_key_uri=row.node_key_uri,
            is_current=row.is_current,
            revoked=row.revoked,
        )

    async def with_subject(self, subject: Subject) -> Sequence[NodeId]:
        """See `attestor.NodeReads`."""
        self._reads.add(("subject", subject.digest))
        found = await self._loader.get(self._loader.nodes_by_subject, subject.digest)
        return [NodeId(node) for node in found or ()]


class Bindings:
    """Implements `attestor.BindingReads` for one attestor and notes what was read."""

    __slots__ = ("_attestor", "_loader", "_reads")

    def __init__(self, loader: Loader, reads: set[tuple[str, object]], attestor: str) -> None:
        """Read through the loader, under this attestor's id only."""
        self._loader = loader
        self._reads = reads
        self._attestor = attestor

    async def get(self, subject: bytes) -> NodeId | None:
        """See `attestor.BindingReads`."""
        if not is_digest(subject):
            message = "a subject is 32 bytes"
            raise ValueError(message)
        pair = (self._attestor, subject)
        self._reads.add(("binding", pair))
        owner = await self._loader.get(self._loader.bindings, pair)
        return None if owner is None else NodeId(owner)


class Requests:
    """Implements `attestor.RequestReads` for one candidate and notes what was read."""

    __slots__ = ("_attestor", "_csr_sha256", "_loader", "_now", "_reads", "_staged")

    def __init__(
        self,
        loader: Loader,
        reads: set[tuple[str, object]],
        attestor: str,
        csr_sha256: bytes,
        now: datetime,
        staged: Staged,
    ) -> None:
        """Read through the loader; what is consumed is staged."""
        self._loader = loader
        self._reads = reads
        self._attestor = attestor
        self._csr_sha256 = csr_sha256
        self._now = now
        self._staged = staged

    async def approved(self, subject: bytes, grant: Admission) -> bool:
        """See `attestor.RequestReads`."""
        if not is_digest(subject):
            message = "a subject is 32 bytes"
            raise ValueError(message)
        key = (self._attestor, subject, self._csr_sha256)
        self._reads.add(("request", key))
        row = await self._loader.get(self._loader.requests, key)
        snapshot = snapshot_of(grant)
        if row is None or row.state != "approved" or row.expires_at <= self._now:
            return False
        if row.snapshot != snapshot:
            return False
        self._staged.approval = (subject, snapshot)
        return True


class Anchors:
    """Implements `anchors.AnchorReads`."""

    __slots__ = ("_loader",)

    def __init__(self, loader: Loader) -> None:
        """Read through the loader."""
        self._loader = loader

    async def image(self, image_id: str) -> Image | None:
        """See `anchors.AnchorReads`."""
        if not TOKEN_ID.fullmatch(image_id):
            return None
        return await self._loader.get(self._loader.images, image_id)

    async def discovery_site(self, kid: str) -> DiscoverySite | None:
        """See `anchors.AnchorReads`."""
        if not _KID.fullmatch(kid):
            return None
        return await self._loader.get(self._loader.discovery_sites, kid)

    async def cloud_account(self, provider: str, account: str) -> CloudAccount | None:
        """See `anchors.AnchorReads`."""
        if provider not in _PROVIDERS or not _ACCOUNT.fullmatch(account):
            return None
        return await self._loader.get(self._loader.cloud_accounts, (provider, account))

    async def tpm_endorsement(self, ek_sha256: bytes) -> TpmEndorsement | None:
        """See `anchors.AnchorReads`."""
        return await self._loader.get(self._loader.tpm_endorsements, digest(ek_sha256))

    async def tpm_policy(self, tenant: TenantId, pool: str) -> TpmPolicy | None:
        """See `anchors.AnchorReads`."""
        if not TENANT.fullmatch(tenant) or not TENANT.fullmatch(pool):
            return None
        return await self._loader.get(self._loader.tpm_policies, (tenant, pool))
