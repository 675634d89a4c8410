"""Admits a ramdisk that its site's agent vouches for."""

from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from hashlib import sha256

from watchword.handlers.anchors import DiscoverySite
from watchword.handlers.attestor import (
    Admission,
    Deferral,
    Evidence,
    JoinContext,
    Node,
    Subject,
    refuser,
)
from watchword.handlers.attestors.discovery.evidence import (
    LEEWAY,
    MAX_ASSERTION_BYTES,
    MAX_LIFE,
    TYP,
    Assertion,
    read_assertion,
)
from watchword.handlers.attestors.discovery.reasons import REASONS
from watchword.handlers.crypto import jws
from watchword.handlers.errors import SignatureBroken
from watchword.handlers.hardware_ids import identifies, identifying_uuid
from watchword.handlers.kinds import permits
from watchword.schemas.canonical import length_prefixed
from watchword.schemas.errors import SchemaError
from watchword.schemas.ids import NodeId, Role

ID = "discovery"

KINDS = (
    "inventory.refresh",
    "logs.collect",
    "diag.*",
    "disk.wipe",
    "deploy.*",
    "boot.kexec",
)
"""All that a ramdisk may ever be told to do; a site's key can allow less."""

_KEPT = LEEWAY + timedelta(hours=1)
"""How much longer than an assertion its nonce is remembered."""

refuse = refuser(ID)


class DiscoveryAttestor:
    """Proves that a site's agent, now, vouches for this CSR; of the machine it proves only what the agent says."""

    id = ID
    version = "1"
    roles: frozenset[Role] = frozenset(("ramdisk",))
    reasons = REASONS

    async def verify(self, evidence: Evidence, context: JoinContext) -> Admission | Deferral:
        """Admit the ramdisk of a known machine, and have an operator decide on any other.

        Raises:
            Refused: see `reasons`.
        """
        # 1. The evidence is a JWS of bounded size that names a site's key.
        # 2. The key is known and the signature holds (RFC 7515, 5.2). Signer, tenant, pool and site
        #    come from its row; from here on the tenant is authenticated.
        # 3. The key is neither revoked nor expired. A banned one is the core's to find.
        # 4. The assertion is about this site and this CSR, and is good now, for a short time.
        # 5. The machine has a name that can tell it from others.
        # 6. Whom the names belong to already; a contradiction is refused, and only a ramdisk is re-keyed.
        # 7. An operator agrees, unless the site's key says that known machines need none.
        # 8. The nonce is used up for as long as the assertion could come again.

        # Steps 1 and 2
        site, assertion = await _vouched(evidence, context)

        # Step 3
        context.step(3, "the site's key is neither revoked nor expired")
        context.found(
            tenant=site.tenant, site=site.site, revoked=site.revoked, key_expires_at=site.expires_at
        )
        if site.revoked:
            raise refuse("site-revoked", tenant_id=site.tenant)
        if site.expires_at is not None and site.expires_at <= context.now:
            raise refuse("site-expired", tenant_id=site.tenant)

        # Step 4
        context.step(
            4, "the assertion is about this site and this CSR, and good now, for a short time"
        )
        context.found(
            asserted_site=assertion.site,
            asserted_csr=assertion.csr_sha256,
            expires_at=assertion.expiry,
        )
        if assertion.site != site.site:
            raise refuse("other-site", tenant_id=site.tenant)
        if assertion.csr_sha256 != context.csr_sha256.hex():
            raise refuse("other-csr", tenant_id=site.tenant)
        expires_at = assertion.expiry
        if expires_at <= context.now - LEEWAY:
            raise refuse("stale", tenant_id=site.tenant)
        if expires_at > context.now + MAX_LIFE + LEEWAY:
            raise refuse("too-long", tenant_id=site.tenant)

        # Step 5
        context.step(5, "the machine has a name that tells it from others")
        names = _Names.of(assertion, site)
        if names is None:
            raise refuse("no-machine", tenant_id=site.tenant)

        # Step 6
        context.step(6, "its names contradict nothing that is known of living nodes")
        context.found(names=len(names.subjects), bound_by=names.bind.hex)
        known = await _known(names, site, context)

        # Step 7
        context.step(7, "an operator agrees, or the site's key says that this machine needs none")
        context.found(
            approval=site.approval,
            rekeys=lambda: None if known.ramdisk is None else str(known.ramdisk),
            others_of_that_name=len(known.others),
        )
        grant = Admission(
            tenant=site.tenant,
            role=context.role,
            pool=site.pool,
            site=site.site,
            node_id=known.ramdisk,
            bind=names.bind,
            allowed_kinds=_for_ramdisks(site.allowed_kinds),
            subjects=(*names.subjects, Subject("site-key", site.kid)),
        )
        needs_approval = site.approval != "unknown-machines" or known.is_doubtful
        if needs_approval and not await context.requests.approved(names.bind, grant):
            facts = _facts(assertion, known, context.csr_sha256)
            return context.request_approval(names.bind, grant, facts)

        # Step 8
        context.step(8, "the assertion's nonce is used up")
        nonce = length_prefixed(site.kid.encode(), bytes.fromhex(assertion.nonce))
        context.use_once(sha256(nonce).digest(), expires_at=expires_at + _KEPT)
        return grant


@dataclass(frozen=True, slots=True)
class _Names:
    """What tells the machine from others, within its tenant; the first is the one it is bound by."""

    uuid: Subject | None
    macs: tuple[Subject, ...]
    subjects: tuple[Subject, ...]
    """All of them, the UUID first."""
    bind: bytes

    @classmethod
    def of(cls, assertion: Assertion, site: DiscoverySite) -> "_Names | None":
        """Return the names that count, None if none does: an agent of one tenant names no machine of another."""
        uuid = identifying_uuid(assertion.product_uuid)
        macs = tuple(
            Subject("machine", f"{site.tenant}/mac:{mac}")
            for mac in assertion.macs
            if identifies(mac)
        )
        named = None if uuid is None else Subject("machine", f"{site.tenant}/uuid:{uuid}")
        subjects = macs if named is None else (named, *macs)
        return cls(named, macs, subjects, subjects[0].digest) if subjects else None


@dataclass(frozen=True, slots=True)
class _Known:
    """Living nodes of the tenant that have one of the machine's names."""

    ramdisk: NodeId | None
    """The ramdisk of this very machine, which is re-keyed."""
    others: tuple[Node, ...] = ()
    """Whatever else has a name of it: stays as it is, and is shown to the operator."""
    by_one_name: bool = False
    """Whether nothing but a product UUID says that it is the same machine."""

    @property
    def is_doubtful(self) -> bool:
        """Whether the machine is new here, or may be another one, or a name of it is some other living node's."""
        return self.ramdisk is None or bool(self.others) or self.by_one_name


async def _vouched(evidence: Evidence, context: JoinContext) -> tuple[DiscoverySite, Assertion]:
    """Return the row of the key that signed, and what it signed."""
    # Step 1
    context.step(1, "the evidence is a JWS of bounded size that names a site's key")
    token = evidence.payload
    if len(token) > MAX_ASSERTION_BYTES:
        raise refuse("malformed")
    try:
        kid = jws.unverified_kid(token)
    except SignatureBroken:
        raise refuse("malformed") from None

    # Step 2
    context.step(2, "the key is known and its signature holds")
    context.found(site_key=kid)
    site = await context.anchors.discovery_site(kid)
    if site is None:
        raise refuse("unknown-site")
    try:
        payload = jws.verify(token, site.public_key, typ=TYP, kid=kid)
    except SignatureBroken:
        raise refuse("bad-signature") from None
    try:
        return site, read_assertion(payload)
    except SchemaError:
        raise refuse("malformed", tenant_id=site.tenant) from None


async def _known(names: _Names, site: DiscoverySite, context: JoinContext) -> _Known:
    """Return who has the machine's names; raises `identity-conflict` if they are another ramdisk's."""
    found: dict[NodeId, Node] = {}
    named_by: dict[NodeId, set[Subject]] = {}
    for subject, nodes in (await context.nodes.with_subjects(names.subjects)).items():
        for node_id in nodes:
            node = found.get(node_id) or await context.nodes.get(node_id)
            if node is not None and node.tenant == site.tenant:
                found[node_id] = node
                named_by.setdefault(node_id, set()).add(subject)
    owner = await context.bindings.get(names.bind)
    if owner is None:
        return _Known(None, _in_order(found))
    node = found.get(owner) or await context.nodes.get(owner)
    if node is not None and node.state == "banned":
        return _Known(owner)  # the core refuses it, and says so
    if node is None or node.role != "ramdisk" or node.site != site.site:
        raise refuse("identity-conflict", tenant_id=site.tenant)
    # Boards ship with one UUID, and adapters wander: only what agrees in both is the same machine.
    said = named_by.get(owner, set())
    agrees = bool(said.intersection(names.macs)) or not names.macs
    if names.uuid is None:
        agrees = said.issuperset(names.macs)
    if not agrees:
        raise refuse("identity-conflict", tenant_id=site.tenant)
    others = _in_order({node_id: node for node_id, node in found.items() if node_id != owner})
    return _Known(owner, others, by_one_name=not names.macs)


def _in_order(nodes: dict[NodeId, Node]) -> tuple[Node, ...]:
    return tuple(nodes[node_id] for node_id in sorted(nodes))


@lru_cache(maxsize=64)  # a site's key has one list for all its machines
def _for_ramdisks(kinds: tuple[str, ...]) -> tuple[str, ...]:
    """Return what a site's key allows of what a ramdisk may be told."""
    return tuple(kind for kind in kinds if permits(KINDS, kind))


def _facts(assertion: Assertion, known: _Known, csr_sha256: bytes) -> dict[str, str]:
    """Return what an operator sees: what the site's agent said, and which nodes have these names already."""
    facts = {"csrSha256": csr_sha256.hex()}
    if assertion.product_uuid is not None:
        facts["productUuid"] = assertion.product_uuid
    if assertion.bmc is not None:
        facts["bmc"] = assertion.bmc
    for number, mac in enumerate(assertion.macs, start=1):
        facts[f"mac{number}"] = mac
    if known.ramdisk is not None:
        facts["rekeysNode"] = str(known.ramdisk)
    for number, node in enumerate(known.others[:8], start=1):
        facts[f"linkedNode{number}"] = f"{node.id} {node.role} {node.state}"
    return facts
