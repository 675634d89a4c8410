"""Admits a machine that shows a join token: scope, uses, expiry, `expect`, `allowReclaim`."""

import hmac
from hashlib import sha256
from uuid import UUID

from watchword.handlers.attestor import (
    Admission,
    Deferral,
    Evidence,
    JoinContext,
    refuser,
)
from watchword.handlers.attestors.join_token.evidence import decode
from watchword.schemas.errors import SchemaError
from watchword.schemas.ids import ROLES, NodeId, Role
from watchword.schemas.reasons import JOIN_TOKEN

ID = "join-token"

refuse = refuser(ID)

_NOBODYS = sha256(b"no token has this secret's digest").digest()
"""Compared against when there is no such token, so that both refusals take the same steps."""


class JoinTokenAttestor:
    """Proves knowledge of a token's secret: the root of trust for a first machine."""

    id = ID
    version = "1"
    roles: frozenset[Role] = ROLES
    reasons = JOIN_TOKEN

    async def verify(self, evidence: Evidence, context: JoinContext) -> Admission | Deferral:
        """Admit the holder of a token that has uses left.

        Raises:
            Refused: `malformed`, `unknown-token`, `bad-secret`, `revoked`, `expired`, `used-up`, `wrong-role`.
        """
        # 1. The payload is an id and 32 bytes of secret, and nothing else.
        # 2. The secret's SHA-256 is the one stored under the id, compared in constant time. From
        #    here on the token's tenant is authenticated.
        # 3. The token is neither revoked nor expired, and has uses left.
        # 4. The token is for machines of this role.
        # 5. One use is spent; whether one is left is looked at again under the token's lock. What
        #    the token expects of the claims is the core's to compare.

        # Step 1
        context.step(1, "the payload is a token's id and 32 bytes of secret")
        try:
            token_id, secret = decode(evidence.payload)
        except SchemaError:
            raise refuse("malformed") from None

        # Step 2
        context.step(2, "the token exists, and the secret is its own")
        context.found(token=token_id)
        token = await context.tokens.get(token_id)
        shown = sha256(secret).digest()
        same = hmac.compare_digest(shown, _NOBODYS if token is None else token.secret_sha256)
        if token is None:
            raise refuse("unknown-token", tried=token_id)
        if not same:
            raise refuse("bad-secret", tried=token_id)

        # Step 3
        context.step(3, "the token is neither revoked nor expired, and has uses left")
        context.found(
            tenant=token.tenant,
            revoked=token.revoked,
            expires_at=token.expires_at,
            uses_left=token.uses_left,
        )
        if token.revoked:
            raise refuse("revoked", tenant_id=token.tenant, tried=token_id)
        if token.expires_at is not None and token.expires_at <= context.now:
            raise refuse("expired", tenant_id=token.tenant, tried=token_id)
        if token.uses_left <= 0:
            raise refuse("used-up", tenant_id=token.tenant, tried=token_id)

        # Step 4
        context.step(4, "the token is for machines of this role")
        context.found(role_of_token=token.role)
        if token.role != context.role:
            raise refuse("wrong-role", tenant_id=token.tenant, tried=token_id)

        # Step 5
        context.step(5, "one use is spent")
        context.found(pool=token.pool, site=token.site, allow_reclaim=token.allow_reclaim)
        context.spend(token.id)
        named = token.expect.get("node") if token.allow_reclaim else None
        return Admission(
            tenant=token.tenant,
            role=token.role,
            pool=token.pool,
            site=token.site,
            node_id=None if named is None else NodeId(UUID(named)),
            token_id=token.id,
            allowed_kinds=token.allowed_kinds,
        )
