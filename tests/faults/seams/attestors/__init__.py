"""Two attestors as strangers ship them: one in two rounds, one with SQL of its own. Installed in workers alone."""

import os
from datetime import timedelta
from hashlib import sha256

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.hashes import SHA256

from watchword.handlers.attestor import (
    Admission,
    Challenge,
    Deferral,
    Evidence,
    JoinContext,
    refuser,
)
from watchword.handlers.errors import SealBroken
from watchword.schemas.ids import Role, TenantId
from watchword.schemas.reasons import Reason

HIDDEN = sha256(b"the secret in every challenge's state").digest()
"""Stands in each state, and must be seen nowhere."""

_CHALLENGE_BYTES = 32
_LIFE = timedelta(minutes=10)
_LABEL = b"faults two rounds"
_TENANT, _POOL = TenantId("acme"), "racks"


class TwoRounds:
    """Proves possession of the CSR's key once more, by a signature over a challenge."""

    id = "two-rounds"
    version = "1"
    roles: frozenset[Role] = frozenset(("node",))
    reasons = (
        Reason(
            "wrong-answer", "WF0001", "high", "The challenge was not answered by the CSR's key."
        ),
        Reason("wrong-state", "WF0002", "high", "The state is not one that this key was given."),
    )

    async def verify(self, evidence: Evidence, context: JoinContext) -> Admission | Deferral:
        """Hand out a challenge, or look at its answer."""
        refuse = refuser(self.id)
        try:
            state = context.open_state()
        except SealBroken:
            raise refuse("wrong-state") from None
        if state is None:
            challenge = os.urandom(_CHALLENGE_BYTES)
            sealed = context.seal_state(challenge + HIDDEN, _LIFE)
            return Challenge(challenge, sealed, context.now + _LIFE)
        said = _LABEL + state[:_CHALLENGE_BYTES] + context.csr_sha256
        try:
            match context.public_key:
                case ec.EllipticCurvePublicKey() as key:
                    key.verify(evidence.payload, said, ec.ECDSA(SHA256()))
                case ed25519.Ed25519PublicKey() as key:
                    key.verify(evidence.payload, said)
                case _:
                    raise refuse("wrong-answer")
        except InvalidSignature:
            raise refuse("wrong-answer") from None
        return Admission(tenant=_TENANT, role=context.role, pool=_POOL, allowed_kinds=())


class OwnSql:
    """Writes down which CSR it has seen; the note stands or falls with the join."""

    id = "own-sql"
    version = "1"
    uses_tx = True
    roles: frozenset[Role] = frozenset(("node",))
    reasons = (Reason("no", "WF0003", "low", "The machine asked to be refused."),)

    async def verify(self, evidence: Evidence, context: JoinContext) -> Admission | Deferral:
        """Write, then do what the machine asks for."""
        if context.tx is None:
            message = "an attestor with SQL of its own was given no transaction"
            raise RuntimeError(message)
        await context.tx.execute("INSERT INTO public.notes (csr) VALUES ($1)", context.csr_sha256)
        if evidence.payload != b"admit":
            raise refuser(self.id)("no")
        return Admission(tenant=_TENANT, role=context.role, pool=_POOL, allowed_kinds=())
