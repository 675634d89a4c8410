"""Typed reads for verifiers; what was read is noted, so that a change of it is seen.

Keys are checked at the seam, because one NUL or lone surrogate would fail the query for all.
"""

import re
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from datetime import datetime
from typing import Any
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
from watchword.handlers.join.candidate import Candidate, Seen
from watchword.handlers.join.loading import Loader
from watchword.handlers.join.ports import Reads
from watchword.handlers.rows import NodeRow
from watchword.schemas.ids import AttestorId, NodeId, TenantId

Query = Callable[[Sequence[Any]], Awaitable[Mapping[Any, object]]]

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

    __slots__ = ("_loader", "_reads", "_seen")

    def __init__(self, loader: Loader, reads: set[tuple[str, object]], seen: Seen) -> None:
        """Read through the loader."""
        self._loader = loader
        self._reads = reads
        self._seen = seen

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
        self._seen["certificates", tbs_sha256] = row
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
        return (await self.with_subjects((subject,)))[subject]

    async def with_subjects(
        self, subjects: Sequence[Subject]
    ) -> Mapping[Subject, Sequence[NodeId]]:
        """See `attestor.NodeReads`."""
        digests = [subject.digest for subject in subjects]
        self._reads.update(("subject", each) for each in digests)
        rows = await self._loader.get_all(self._loader.nodes_by_subject, digests)
        return {
            subject: [NodeId(node) for node in found or ()]
            for subject, found in zip(subjects, rows, strict=True)
        }


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
    """Implements `anchors.AnchorReads` and notes what was read: it is read again under the locks."""

    __slots__ = ("_loader", "_seen")

    def __init__(self, loader: Loader, seen: Seen) -> None:
        """Read through the loader."""
        self._loader = loader
        self._seen = seen

    async def image(self, image_id: str) -> Image | None:
        """See `anchors.AnchorReads`."""
        if not TOKEN_ID.fullmatch(image_id):
            return None
        found = await self._loader.get(self._loader.images, image_id)
        self._seen["images", image_id] = found
        return found

    async def discovery_site(self, kid: str) -> DiscoverySite | None:
        """See `anchors.AnchorReads`."""
        if not _KID.fullmatch(kid):
            return None
        found = await self._loader.get(self._loader.discovery_sites, kid)
        self._seen["discovery_sites", kid] = found
        return found

    async def cloud_account(self, provider: str, account: str) -> CloudAccount | None:
        """See `anchors.AnchorReads`."""
        if provider not in _PROVIDERS or not _ACCOUNT.fullmatch(account):
            return None
        found = await self._loader.get(self._loader.cloud_accounts, (provider, account))
        self._seen["cloud_accounts", (provider, account)] = found
        return found

    async def tpm_endorsement(self, ek_sha256: bytes) -> TpmEndorsement | None:
        """See `anchors.AnchorReads`."""
        found = await self._loader.get(self._loader.tpm_endorsements, digest(ek_sha256))
        self._seen["tpm_endorsements", ek_sha256] = found
        return found

    async def tpm_policy(self, tenant: TenantId, pool: str) -> TpmPolicy | None:
        """See `anchors.AnchorReads`."""
        if not TENANT.fullmatch(tenant) or not TENANT.fullmatch(pool):
            return None
        found = await self._loader.get(self._loader.tpm_policies, (tenant, pool))
        self._seen["tpm_policies", (tenant, pool)] = found
        return found


async def read_again(reads: Reads, candidates: Sequence[Candidate]) -> Seen:
    """Return how all that is now which verifiers of these candidates had `seen`: a query for each kind.

    Whoever takes any of it back waits for the batches that run (`Session.begin`), so it stays so until the commit;
    certificates are their nodes', which are locked.
    """
    wanted: dict[str, dict[Hashable, None]] = {}
    for candidate in candidates:
        for kind, key in candidate.seen:
            wanted.setdefault(kind, {})[key] = None
    again: Seen = {}
    queries = _queries(reads)
    for kind, keys in wanted.items():
        rows = await queries[kind](list(keys))
        again |= {(kind, key): rows.get(key) for key in keys}
    return again


def _queries(reads: Reads) -> Mapping[str, Query]:
    """Return what reads each kind of what verifiers have `seen`."""
    return {
        "images": reads.images,
        "discovery_sites": reads.discovery_sites,
        "cloud_accounts": reads.cloud_accounts,
        "tpm_endorsements": reads.tpm_endorsements,
        "tpm_policies": reads.tpm_policies,
        "certificates": reads.certificates,
    }
