"""Admits an instance of a cloud account that an operator has named: once, for ever."""

from hashlib import sha256

from watchword.handlers.anchors import CloudAccount
from watchword.handlers.attestor import (
    Admission,
    Deferral,
    Evidence,
    JoinContext,
    Subject,
    refuser,
)
from watchword.handlers.attestors.cloud_iid import aws, azure, gcp
from watchword.handlers.attestors.cloud_iid.anchors import AnchorFolder
from watchword.handlers.attestors.cloud_iid.config import Config
from watchword.handlers.attestors.cloud_iid.document import Identity
from watchword.handlers.attestors.cloud_iid.evidence import CloudEvidence
from watchword.handlers.attestors.cloud_iid.reasons import REASONS, Unproven
from watchword.schemas.canonical import length_prefixed
from watchword.schemas.errors import SchemaError
from watchword.schemas.ids import Role

ID = "cloud-iid"

refuse = refuser(ID)


class CloudIidAttestor:
    """Proves an instance by what its cloud signed; where it goes is the account's row."""

    id = ID
    version = "1"
    roles: frozenset[Role] = frozenset(("node", "site"))
    reasons = REASONS

    def __init__(self, anchors: AnchorFolder, config: Config | None = None) -> None:
        """Take the anchors, which may be reloaded at any time, and the limits."""
        self.anchors = anchors
        self._config = config or Config()

    async def verify(self, evidence: Evidence, context: JoinContext) -> Admission | Deferral:
        """Return the admission of a proven instance, or ask an operator where the account says so.

        Raises:
            Refused: see `reasons`.
        """
        # 1. The evidence is one identity of one cloud, within its bounds.
        # 2. The cloud signed it; provider, account, instance and region come from the signed bytes alone.
        # 3. An operator has named the account, has not revoked it, and lets its region and role join.
        # 4. An operator agrees, if the account asks for it.
        # 5. The instance is used up for ever, and bound to its node. One that is bound already comes back
        #    only where an operator's grant names its node, which is for the core to see.

        # Step 1
        context.step(1, "the evidence is one identity of one cloud")
        try:
            shown = CloudEvidence.decode(evidence.payload)
        except SchemaError:
            raise refuse("malformed") from None

        # Step 2
        context.step(2, "the cloud signed it")
        context.found(provider=shown.provider)
        try:
            identity = self._prove(shown, context)
        except Unproven as error:
            raise refuse(error.reason) from None

        # Step 3
        context.step(
            3,
            "an operator named the account, has not revoked it, and lets its region and role join",
        )
        context.found(account=identity.account, instance=identity.instance, region=identity.region)
        account = await context.anchors.cloud_account(identity.provider, identity.account)
        if account is None:
            raise refuse("account-unknown")
        _check(account, identity, context.role)

        # Step 4
        context.step(4, "an operator agrees, if the account asks for it")
        context.found(tenant=account.tenant, pool=account.pool, approval=account.approval)
        bind = instance_digest(identity)
        grant = _grant(account, identity, bind)
        if account.approval and not await context.requests.approved(bind, grant):
            return context.request_approval(bind, grant, _facts(identity))

        # Step 5
        context.step(5, "the instance is used up for ever, and bound to its node")
        context.found(subject=bind.hex)
        if await context.bindings.get(bind) is None:
            context.use_once(bind)
        return grant

    def _prove(self, shown: CloudEvidence, context: JoinContext) -> Identity:
        if shown.provider == "aws":
            return aws.prove(shown, self.anchors, self._config.aws, context.now)
        if shown.provider == "gcp":
            config = self._config.gcp
            audience = gcp.audience_for(config, context.csr_sha256)
            return gcp.prove(
                shown.signature,
                self.anchors.google_keys,
                config,
                audience,
                context.now,
                used=lambda kid: self.anchors.used_key(kid, context.now),
            )
        return azure.prove(shown, self.anchors, self._config.azure, context.csr_sha256, context.now)


def instance_digest(identity: Identity) -> bytes:
    """Return the 32 bytes that name an instance: provider, account and instance, and no region."""
    parts = (identity.provider, identity.account, identity.instance)
    return sha256(b"cloud-iid" + length_prefixed(*(part.encode() for part in parts))).digest()


def _check(account: CloudAccount, identity: Identity, role: Role) -> None:
    if account.revoked:
        raise refuse("account-revoked", tenant_id=account.tenant)
    # Where a provider signs no region, no list of regions can be met.
    if account.regions is not None and identity.region not in account.regions:
        raise refuse("region", tenant_id=account.tenant)
    if account.role != role:
        raise refuse("wrong-role", tenant_id=account.tenant)


def _grant(account: CloudAccount, identity: Identity, bind: bytes) -> Admission:
    name = f"{identity.provider}/{identity.account}"
    return Admission(
        tenant=account.tenant,
        role=account.role,
        pool=account.pool,
        site=account.site,
        bind=bind,
        allowed_kinds=account.allowed_kinds,
        subjects=(
            Subject("cloud-instance", f"{name}/{identity.instance}"),
            Subject("cloud-account", name),
        ),
    )


def _facts(identity: Identity) -> dict[str, str]:
    """Return what was proved, for the operator's eyes."""
    facts = {
        "provider": identity.provider,
        "account": identity.account,
        "instance": identity.instance,
    }
    return facts if identity.region is None else {**facts, "region": identity.region}
