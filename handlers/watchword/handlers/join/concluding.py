"""What follows from a verifier's result, without the locks: steps 5, 6 and 8 to 11 of the order of checks.

Bans (step 7) come before what steps 8 to 11 object, and are read under the locks: an objection is noted.
"""

from datetime import datetime, timedelta
from uuid import UUID

import structlog
from uuid_utils.compat import uuid7

from watchword.handlers.attestor import (
    Admission,
    Approval,
    Challenge,
    Deferral,
    Staged,
    Subject,
)
from watchword.handlers.catalog import Registered
from watchword.handlers.crypto.join_crypto import JoinCrypto
from watchword.handlers.errors import Refused
from watchword.handlers.join.approvals import snapshot_of
from watchword.handlers.join.candidate import (
    Admit,
    Broken,
    Candidate,
    Challenged,
    Judgement,
    Proof,
    Waits,
)
from watchword.handlers.join.contract import fault_in_effects, fault_of
from watchword.handlers.join.expectations import meets
from watchword.handlers.join.granted import grant_for, granted_node
from watchword.handlers.join.loading import Loader
from watchword.handlers.join.policy import JoinPolicy
from watchword.handlers.join.proving import Proving
from watchword.handlers.join.reading import Nodes, Tokens
from watchword.handlers.join.reclaim import which_node
from watchword.handlers.rows import NodeRow, Pair
from watchword.schemas.ids import JOIN, AttestorId

_log = structlog.get_logger(__name__)


class Conclusions:
    """Holds verifiers to the contract, and makes judgements of what they return."""

    def __init__(self, crypto: JoinCrypto, policy: JoinPolicy, retry_after: timedelta) -> None:
        """`retry_after` is when a machine that waits for an operator is to ask again."""
        self._crypto = crypto
        self._policy = policy
        self._retry_after = retry_after

    async def conclude(
        self,
        candidate: Candidate,
        registered: Registered,
        found: Admission | Deferral,
        staged: Staged,
        others: Proving,
        now: datetime,
        loader: Loader,
    ) -> Judgement:
        """Return what follows from the verifier's result: steps 5 to 11, without the bans.

        `others` knows what another attestor has proved for it.

        Raises:
            Refused: a check of the core's failed.
        """
        attestor = AttestorId(registered.attestor.id)
        proof = others.proof
        if (fault := _fault(candidate, found, staged, others)) is not None:
            _log.error("attestor broke its contract", attestor=attestor, fault=fault)
            return Broken(fault)
        if isinstance(found, Challenge):
            return Challenged(found)
        if isinstance(found, Approval):
            return self._may_wait(candidate, attestor, found, proof, now)

        # Step 5
        if found.node_key_uri is not None and not self._crypto.knows_key_statement(
            found.node_key_uri
        ):
            raise Refused(JOIN, "node-key-statement", tenant_id=found.tenant)

        # Step 6
        token = None
        if found.token_id is not None:
            token = await Tokens(loader, candidate.reads).get(found.token_id)
            if token is None:
                _log.error("attestor named a token that does not exist", attestor=attestor)
                return Broken("no such token")
            if candidate.claims is None or not meets(token.expect, candidate.claims):
                raise Refused(JOIN, "expect-mismatch", tenant_id=found.tenant)

        # Steps 8 to 11
        subjects = ban_subjects(candidate, found, proof)
        grant: UUID | None = None
        objection: Refused | None = None
        node_id = uuid7()
        rekeys: NodeRow | None = None
        bindings: tuple[Pair, ...] = ()
        try:
            nodes, reads = Nodes(loader, candidate.reads, candidate.seen), candidate.reads
            granted = None
            if loader.has_grants:
                granted = await grant_for(attestor, subjects, loader, reads, now)
            if granted is None:
                place = await which_node(attestor, found, token, nodes, loader, reads, proof)
            else:
                place = await granted_node(attestor, found, granted, nodes, loader, reads, proof)
                grant = granted.id
            bindings = place.bindings
            if place.rekeys is not None:
                node_id, rekeys = place.rekeys.id, place.rekeys
            if not self._policy.allows(attestor, found):
                raise Refused(JOIN, "not-allowed", tenant_id=found.tenant)  # noqa: TRY301 - one of several places
        except Refused as refused:
            objection = refused
        if proof is not None:
            staged.spends += proof.staged.spends
        return Admit(
            admission=found,
            staged=staged,
            node_id=node_id,
            rekeys=rekeys,
            ban_subjects=subjects,
            bindings=bindings,
            objection=objection,
            grant=grant,
            approval=staged.approval,
            proof=proof,
        )

    def _may_wait(
        self,
        candidate: Candidate,
        attestor: AttestorId,
        approval: Approval,
        proof: Proof | None,
        now: datetime,
    ) -> Judgement:
        """Return that an operator has to agree, if the policy would let the attestor return that grant at all.

        Raises:
            Refused: it would not; no operator needs to be asked.
        """
        grant = approval.grant
        if grant.node_key_uri is not None and not self._crypto.knows_key_statement(
            grant.node_key_uri
        ):
            raise Refused(JOIN, "node-key-statement", tenant_id=grant.tenant)
        if not self._policy.allows(attestor, grant):
            raise Refused(JOIN, "not-allowed", tenant_id=grant.tenant)
        return Waits(
            approval,
            ban_subjects(candidate, grant, proof),
            now + self._retry_after,
        )


def _fault(
    candidate: Candidate, found: Admission | Deferral, staged: Staged, others: Proving
) -> str | None:
    """Return what is wrong with a result and its effects, or None. The text quotes no value."""
    fault = fault_of(found) or fault_in_effects(staged) or fault_in_proof(found, others)
    if fault is not None:
        return fault
    if isinstance(found, Challenge | Approval) and (staged.spends or staged.uses):
        return "spends staged with a deferral"
    if isinstance(found, Challenge):
        return None
    grant = found.grant if isinstance(found, Approval) else found
    if candidate.request is None or grant.role != candidate.request.role:
        return "another role"
    if found is grant and staged.approval is not None and staged.approval[1] != snapshot_of(grant):
        return "another grant than was approved"
    return None


def fault_in_proof(found: Admission | Deferral, others: Proving) -> str | None:
    """Return what is wrong with a result after another attestor was asked, or None.

    A challenge of the other's is answered before anything else; what it proved, an admission carries.
    """
    if isinstance(found, Challenge):
        return None
    if others.is_challenged:
        return "another attestor's challenge is open"
    if others.proof is None:
        return None
    grant = found.grant if isinstance(found, Approval) else found
    try:
        is_carried = grant.carrying(others.proof.admission) == grant
    except ValueError:
        is_carried = False
    return None if is_carried else "does not carry what was proved"


def ban_subjects(
    candidate: Candidate, admission: Admission, proof: Proof | None = None
) -> tuple[bytes, ...]:
    """Return every proven subject of an admission, and of what it carries, by which it may be banned."""
    found = _subjects(admission)
    if proof is not None:
        found += _subjects(proof.admission)
    if candidate.csr is not None:
        found.append(Subject("spki", candidate.csr.spki_sha256.hex()).digest)
    return tuple(found)


def _subjects(admission: Admission) -> list[bytes]:
    subjects = [subject.digest for subject in admission.subjects]
    if admission.token_id is not None:
        subjects.append(Subject("token", admission.token_id).digest)
    if admission.site is not None:
        subjects.append(Subject("site", f"{admission.tenant}/{admission.site}").digest)
    if admission.hardware_key is not None:
        subjects.append(Subject("hardware-key", admission.hardware_key).digest)
    if admission.node_key_uri is not None:
        subjects.append(Subject("node-key", admission.node_key_uri).digest)
    if admission.certificate is not None:
        subjects.append(Subject("certificate", admission.certificate.hex()).digest)
    return subjects
