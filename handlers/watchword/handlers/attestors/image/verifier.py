"""Admits a machine that shows its image's secret, once a second fact agrees."""

import hmac
import re
from hashlib import sha256

import structlog

from watchword.handlers.anchors import Image
from watchword.handlers.attestor import (
    Admission,
    Deferral,
    Evidence,
    JoinContext,
    Subject,
    refuser,
)
from watchword.handlers.attestors.image.evidence import decode
from watchword.handlers.attestors.image.reasons import REASONS
from watchword.handlers.hardware_ids import identifying_uuid
from watchword.handlers.join.expectations import meets
from watchword.schemas.canonical import length_prefixed
from watchword.schemas.errors import SchemaError
from watchword.schemas.ids import ROLES, Role
from watchword.schemas.requests import Claims

ID = "image"

refuse = refuser(ID)

_log = structlog.get_logger(__name__)

_NOBODYS = sha256(b"no image has this secret's digest").digest()
"""Compared against when there is no such image, so that both refusals take the same steps."""

_UNUSUAL = re.compile(r"[^A-Za-z0-9 ._:/-]")


class ImageAttestor:
    """Proves knowledge of a secret that many machines share: one fact, never enough alone."""

    id = ID
    version = "1"
    roles: frozenset[Role] = ROLES
    reasons = REASONS

    async def verify(self, evidence: Evidence, context: JoinContext) -> Admission | Deferral:
        """Admit the holder of an image's secret whom an operator has agreed to.

        Raises:
            Refused: see `reasons`.
        """
        # 1. The payload is an id and 32 bytes of secret, and nothing else.
        # 2. The secret's SHA-256 is the one stored under the id, compared in constant time. From
        #    here on the image's tenant is authenticated.
        # 3. The image is neither revoked nor expired, and for machines of this role.
        # 4. The claims are what the image expects. That narrows, and is no second fact.
        # 5. A machine that may use the image once only is named by a UUID that can name one.
        # 6. The second fact: an operator agrees to image, claims and CSR, unless the image says that
        #    it does without.

        # Step 1
        try:
            shown = decode(evidence.payload)
        except SchemaError:
            raise refuse("malformed") from None

        # Step 2
        image = await context.anchors.image(shown.id)
        digest = sha256(shown.secret).digest()
        same = hmac.compare_digest(digest, _NOBODYS if image is None else image.secret_sha256)
        if image is None:
            raise refuse("unknown-image", tried=shown.id)
        if not same:
            raise refuse("bad-secret", tried=shown.id)

        # Step 3
        if image.revoked:
            raise refuse("revoked", tenant_id=image.tenant, tried=shown.id)
        if image.expires_at is not None and image.expires_at <= context.now:
            raise refuse("expired", tenant_id=image.tenant, tried=shown.id)
        if image.role != context.role:
            raise refuse("wrong-role", tenant_id=image.tenant, tried=shown.id)

        # Step 4: which node it is, an image cannot expect
        if "node" in image.expect or not meets(image.expect, evidence.claims):
            raise refuse("expectation", tenant_id=image.tenant, tried=shown.id)

        # Step 5
        machine = identifying_uuid(evidence.claims.product_uuid)
        if image.once_per_machine and machine is None:
            raise refuse("no-machine", tenant_id=image.tenant, tried=shown.id)
        grant = _grant(image)

        # Step 6
        match image.second_fact:
            case "approval":
                subject = _subject(image, evidence.claims, context.csr_sha256)
                if not await context.requests.approved(subject, grant):
                    facts = _facts(image, evidence.claims, context.csr_sha256)
                    return context.request_approval(subject, grant, facts)
            case "unsafe_single_factor":
                _log.warning(
                    "an image admits by its secret alone", image=image.id, tenant=image.tenant
                )
            case _:
                raise refuse("second-fact", tenant_id=image.tenant, tried=shown.id)
        if image.once_per_machine and machine is not None:
            context.use_once(sha256(length_prefixed(image.id.encode(), machine.encode())).digest())
        return grant


def _grant(image: Image) -> Admission:
    return Admission(
        tenant=image.tenant,
        role=image.role,
        pool=image.pool,
        site=image.site,
        allowed_kinds=image.allowed_kinds,
        subjects=(Subject("image", image.id),),
    )


def _subject(image: Image, claims: Claims, csr_sha256: bytes) -> bytes:
    """Return what an operator's word is about: another claim, or another key, is another matter."""
    return sha256(
        length_prefixed(
            image.id.encode(),
            (claims.product_uuid or "").encode(),
            (claims.serial or "").encode(),
            csr_sha256,
        )
    ).digest()


def _facts(image: Image, claims: Claims, csr_sha256: bytes) -> dict[str, str]:
    """Return what an operator sees; a machine's own words stand under `claimed…` and are made harmless."""
    facts = {"image": image.id, "csrSha256": csr_sha256.hex()}
    for name, said in (
        ("claimedProductUuid", claims.product_uuid),
        ("claimedSerial", claims.serial),
    ):
        if said:
            facts[name] = _UNUSUAL.sub("?", said)
    return facts
