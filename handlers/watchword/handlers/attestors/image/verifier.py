"""Admits a machine that shows its image's secret, once a second fact agrees."""

import hmac
import re
from datetime import timedelta
from hashlib import sha256

import structlog

from watchword.handlers.anchors import Image
from watchword.handlers.attestor import (
    Admission,
    Challenge,
    Deferral,
    Evidence,
    JoinContext,
    Subject,
    refuser,
)
from watchword.handlers.attestors.image.evidence import (
    ImageEvidence,
    SecondEvidence,
    asks_for,
    decode,
)
from watchword.handlers.attestors.image.reasons import REASONS
from watchword.handlers.errors import NotProvable, SealBroken
from watchword.handlers.hardware_ids import identifying_uuid
from watchword.handlers.join.expectations import meets
from watchword.schemas.canonical import length_prefixed, read_length_prefixed
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
        """Admit the holder of an image's secret for whom a second fact speaks.

        Raises:
            Refused: see `reasons`; and whatever the other attestor refuses with.
        """
        # 1. The payload is an id and 32 bytes of secret, and perhaps another attestor's evidence.
        # 2. The secret's SHA-256 is the one stored under the id, compared in constant time. From
        #    here on the image's tenant is authenticated.
        # 3. The image is neither revoked nor expired, and for machines of this role.
        # 4. The claims are what the image expects. That narrows, and is no second fact.
        # 5. A machine that may use the image once only is named by a UUID that can name one.
        # 6. The second fact: an operator agrees to image, claims and CSR; or the attestor that the
        #    image names proves its evidence for this CSR (`_proved`); or the image says that it does
        #    without. Evidence that nobody asked for is refused.

        # Step 1
        context.step(
            1, "the payload is an image's id and secret, and perhaps another attestor's evidence"
        )
        try:
            said = decode(evidence.payload)
        except SchemaError:
            raise refuse("malformed") from None

        # Step 2
        context.step(2, "the image exists, and the secret is its own")
        context.found(
            image=said.shown.id,
            second_evidence=None if said.second is None else said.second.attestor,
        )
        image = await context.anchors.image(said.shown.id)
        digest = sha256(said.shown.secret).digest()
        same = hmac.compare_digest(digest, _NOBODYS if image is None else image.secret_sha256)
        if image is None:
            raise refuse("unknown-image", tried=said.shown.id)
        if not same:
            raise refuse("bad-secret", tried=said.shown.id)

        # Step 3
        context.step(3, "the image is neither revoked nor expired, and for machines of this role")
        context.found(
            tenant=image.tenant,
            revoked=image.revoked,
            expires_at=image.expires_at,
            role_of_image=image.role,
        )
        if image.revoked:
            raise refuse("revoked", tenant_id=image.tenant, tried=image.id)
        if image.expires_at is not None and image.expires_at <= context.now:
            raise refuse("expired", tenant_id=image.tenant, tried=image.id)
        if image.role != context.role:
            raise refuse("wrong-role", tenant_id=image.tenant, tried=image.id)

        # Step 4: which node it is, an image cannot expect
        context.step(4, "the claims are what the image expects")
        context.found(expects=lambda: ", ".join(sorted(image.expect)) or "nothing")
        if "node" in image.expect or not meets(image.expect, evidence.claims):
            raise refuse("expectation", tenant_id=image.tenant, tried=image.id)

        # Step 5
        context.step(5, "a machine that may use the image once only has a UUID that can name one")
        context.found(once_per_machine=image.once_per_machine)
        machine = identifying_uuid(evidence.claims.product_uuid)
        if image.once_per_machine and machine is None:
            raise refuse("no-machine", tenant_id=image.tenant, tried=image.id)

        # Step 6
        context.step(6, "the second fact is there")
        context.found(second_fact=image.second_fact, pool=image.pool, site=image.site)
        found = await self._second_fact(image, said, evidence.claims, context)
        if isinstance(found, Admission) and image.once_per_machine and machine is not None:
            context.use_once(sha256(length_prefixed(image.id.encode(), machine.encode())).digest())
        return found

    async def _second_fact(
        self, image: Image, said: ImageEvidence, claims: Claims, context: JoinContext
    ) -> Admission | Deferral:
        """Return the grant if the second fact is there, or what is to be waited for."""
        grant = _grant(image)
        wanted = asks_for(image.second_fact)
        if wanted is not None:
            return await _proved(image, wanted, said.second, grant, context)
        if said.second is not None:
            raise refuse("second-other", tenant_id=image.tenant, tried=image.id)
        match image.second_fact:
            case "approval":
                subject = _subject(image, claims, context.csr_sha256)
                if not await context.requests.approved(subject, grant):
                    facts = _facts(image, claims, context.csr_sha256)
                    return context.request_approval(subject, grant, facts)
            case "unsafe_single_factor":
                _log.warning(
                    "an image admits by its secret alone", image=image.id, tenant=image.tenant
                )
            case _:
                raise refuse("second-fact", tenant_id=image.tenant, tried=image.id)
        return grant


async def _proved(
    image: Image,
    wanted: str,
    second: SecondEvidence | None,
    grant: Admission,
    context: JoinContext,
) -> Admission | Challenge:
    """Return the grant carrying what the other attestor proves, or that attestor's challenge.

    Raises:
        Refused: ours, or the other's.
    """
    # 1. There is evidence, and it is for the attestor that the image names, and for no other.
    # 2. A state is of this image and this attestor, and holds the other's own.
    # 3. The other verifies, for the same CSR, role, claims and time; its refusal is the join's.
    # 4. Its challenge goes to the machine, its state inside one of ours.
    # 5. Both facts lead to one place: else whoever has a machine in one pool and the secret of
    #    another's image would have that one too. The image says what the machine may be told.

    # Step 1
    if second is None:
        raise refuse("second-missing", tenant_id=image.tenant, tried=image.id)
    if second.attestor != wanted:
        raise refuse("second-other", tenant_id=image.tenant, tried=image.id)

    # Step 2
    state = _opened(image, wanted, context)

    # Step 3
    try:
        proof = await context.others.prove(wanted, second.payload, state)
    except NotProvable:
        raise refuse("second-fact", tenant_id=image.tenant, tried=image.id) from None

    # Step 4
    if isinstance(proof, Challenge):
        inside = length_prefixed(image.id.encode(), wanted.encode(), proof.state)
        left: timedelta = proof.not_after - context.now
        return Challenge(proof.challenge, context.seal_state(inside, left), proof.not_after)

    # Step 5
    if (proof.tenant, proof.pool) != (image.tenant, image.pool):
        raise refuse("second-elsewhere", tenant_id=image.tenant, tried=image.id)
    if image.site is not None and proof.site != image.site:
        raise refuse("second-elsewhere", tenant_id=image.tenant, tried=image.id)
    return grant.carrying(proof)


def _opened(image: Image, wanted: str, context: JoinContext) -> bytes | None:
    """Return the other attestor's state out of ours; raises `challenge` if it is not of this image."""
    try:
        inside = context.open_state()
        if inside is None:
            return None
        image_id, attestor, state = read_length_prefixed(inside, 3)
    except (SealBroken, SchemaError):
        raise refuse("challenge", tenant_id=image.tenant, tried=image.id) from None
    if (image_id, attestor) != (image.id.encode(), wanted.encode()):
        raise refuse("challenge", tenant_id=image.tenant, tried=image.id)
    return state


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
