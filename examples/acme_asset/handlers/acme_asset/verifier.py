"""The attestor."""

from hashlib import sha256

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from acme_asset.evidence import Malformed, decode, signed_text
from watchword.handlers.attestor import (
    Admission,
    Evidence,
    JoinContext,
    Reason,
    TenantId,
    define_attestor,
    refuser,
)

ID = "acme-asset"

REASONS = (
    Reason("malformed", "ACME0001", "low", "The evidence is no signed asset tag."),
    Reason("unknown-vendor", "ACME0002", "high", "No vendor of that id is known.", attack=True),
    Reason(
        "bad-signature",
        "ACME0003",
        "high",
        "The vendor has not signed this tag for this CSR and role.",
        attack=True,
    ),
    Reason("unknown-tag", "ACME0004", "high", "The tag is not in the asset database."),
    Reason("retired", "ACME0005", "medium", "The asset is out of service."),
)

refuse = refuser(ID)


async def verify(evidence: Evidence, context: JoinContext) -> Admission:
    """Admit the machine that a vendor has signed for.

    Raises:
        Refused: `malformed`, `unknown-vendor`, `bad-signature`, `unknown-tag`, `retired`.
    """
    # 1. The payload is a vendor, a tag and a signature, and nothing else.
    # 2. The vendor is known.
    # 3. The vendor has signed the tag together with role and CSR: who has seen it can use it for no other key.
    # 4. The tag is in the asset database and in service. Its row, and not the machine, says which tenant
    #    and pool; only from here on there is a tenant to speak of.
    # 5. The tag is bound to one node for good.

    # Step 1
    try:
        shown = decode(evidence.payload)
    except Malformed:
        raise refuse("malformed") from None

    # Step 2
    assert context.tx is not None, "`uses_tx` is said below"  # noqa: S101
    vendors = await context.tx.fetch(
        "SELECT public_key FROM plg_acme_asset__vendors WHERE id = $1", shown.vendor
    )
    if not vendors:
        raise refuse("unknown-vendor")

    # Step 3
    key = Ed25519PublicKey.from_public_bytes(vendors[0]["public_key"])
    try:
        key.verify(shown.signature, signed_text(context.role, shown.tag, context.csr_sha256))
    except InvalidSignature:
        raise refuse("bad-signature") from None

    # Step 4
    tags = await context.tx.fetch(
        "SELECT tenant, pool, retired FROM plg_acme_asset__tags WHERE tag = $1", shown.tag
    )
    if not tags:
        raise refuse("unknown-tag")
    tenant = TenantId(tags[0]["tenant"])
    if tags[0]["retired"]:
        raise refuse("retired", tenant_id=tenant)

    # Step 5
    return Admission(
        tenant=tenant,
        role=context.role,
        pool=tags[0]["pool"],
        bind=sha256(b"acme-asset tag\0" + shown.tag.encode()).digest(),
        allowed_kinds=("inventory.refresh", "logs.collect"),
    )


attestor = define_attestor(
    ID,
    version="1.0",
    roles=("node", "site"),
    reasons=REASONS,
    uses_tx=True,
    package="acme_asset",
    verify=verify,
)
