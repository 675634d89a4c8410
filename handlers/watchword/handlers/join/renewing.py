"""A node's certificate for a new key: phase A of a request of kind `renew`.

The order of checks; the first that fails is the reason. Shape, key policy and proof of possession of
the new key come before, as for a join (`judging`); locks, claims, bans and the new key's owner after
(`deciding`), where a renewal is a re-key of its node.
  1. the envelope is a renewal's: the attestor is `renew`, and no challenge is answered;
  2. a CSR that was admitted before gets that admission again;
  3. the seal opens, and what is in it has the form of a renewal's evidence;
  4. to 8. the certificate was issued here, its key signed this very CSR and request, and it is in force
     (`holding`);
  9. it is the node's current one; a second key from one certificate is theft;
  10. a key statement holds for the new key: it is the very key that the statement is about, or the attestor
     that made the statement finds it proved for this key and request.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime

import structlog

from watchword.handlers.attestor import Admission, Staged
from watchword.handlers.crypto.join_crypto import JoinCrypto
from watchword.handlers.crypto.keypolicy import PublicKey
from watchword.handlers.crypto.renewals import ProvesKeys, RenewalEvidence, signed_text
from watchword.handlers.errors import Refused, place_of
from watchword.handlers.join.candidate import (
    Again,
    Broken,
    Candidate,
    Judgement,
    NotJudged,
    Refusal,
    Renewal,
    Theft,
)
from watchword.handlers.join.holding import Shown, ban_subjects, checked, read_certificates
from watchword.handlers.join.loading import Loader
from watchword.handlers.join.unsealing import unsealed
from watchword.handlers.rows import INVALID, UNSUPPORTED, Renewable
from watchword.schemas.errors import SchemaError
from watchword.schemas.ids import NodeId, TenantId
from watchword.schemas.requests import RENEWAL_ATTESTOR

_log = structlog.get_logger(__name__)

_BREATH = 16
"""After so many signatures the loop may turn."""


class Renewals:
    """Judges renewals as far as it can be done without locks."""

    def __init__(self, crypto: JoinCrypto, provers: Sequence[ProvesKeys] = ()) -> None:
        """Take the crypto, and the attestors that can prove key statements again."""
        self._crypto = crypto
        self._provers = tuple(provers)

    def examine(self, candidate: Candidate, now: datetime) -> Judgement | RenewalEvidence:
        """Do steps 1 to 3 for a candidate that has proved possession of its new key."""
        request, csr = candidate.request, candidate.csr
        if request is None or csr is None:
            return NotJudged(INVALID, "undecodable", dead_letter=True)

        # Step 1
        if request.resolved_attestor() != RENEWAL_ATTESTOR or candidate.state is not None:
            return NotJudged(UNSUPPORTED, "unknown-attestor")

        # Step 2
        if candidate.admitted_before is not None:
            return Again(candidate.admitted_before)

        # Step 3
        found = unsealed(self._crypto, candidate, request, csr, now)
        if not isinstance(found, tuple):
            return found
        payload, _ = found
        try:
            return RenewalEvidence.decode(payload)
        except SchemaError:
            return Refusal(_refused("malformed"))

    async def judge(
        self, asked: Sequence[tuple[Candidate, RenewalEvidence]], loader: Loader, now: datetime
    ) -> None:
        """Set the judgements of candidates that were examined, after one query for all.

        Raises:
            StoreUnavailable, StoreRejected: the read failed.
        """
        rows = await read_certificates(loader, [shown.tbs_sha256 for _, shown in asked])
        for nth, ((candidate, shown), known) in enumerate(zip(asked, rows, strict=True)):
            try:
                candidate.judgement = self._judged(candidate, shown, known, now)
            except Exception as error:  # noqa: BLE001 - an attestor's author may raise anything
                # A proof that could not be judged refuses nobody: another try is welcome.
                _log.error("renewal broke", error=type(error).__name__, where=place_of(error))
                candidate.judgement = Broken(type(error).__name__)
            if nth % _BREATH == _BREATH - 1:
                await asyncio.sleep(0)

    def _judged(
        self, candidate: Candidate, shown: RenewalEvidence, known: Renewable | None, now: datetime
    ) -> Judgement:
        request, csr = candidate.request, candidate.csr
        if request is None or csr is None:
            return NotJudged(INVALID, "undecodable", dead_letter=True)

        # Steps 4 to 8
        text = signed_text(shown.tbs_sha256, csr.sha256, request.request_id)
        holder = Shown(shown.tbs_sha256, shown.spki_der, shown.signature, text)
        held = checked(RENEWAL_ATTESTOR, candidate, request.role, holder, known, now)
        if isinstance(held, Refused):
            return Refusal(held)
        certificate, node = held.certificate, held.node
        tenant = TenantId(node.tenant)

        # Step 9
        if not certificate.is_current:
            if held.successor_spki in (None, csr.spki_sha256):
                return Refusal(_refused("superseded", tenant))
            return Theft(held, _refused("key-conflict", tenant))

        # Step 10
        statement = certificate.node_key_uri
        if statement is not None and not (
            self._crypto.knows_key_statement(statement)
            and (
                csr.spki_sha256 == certificate.spki_sha256
                or self._is_proved(statement, shown, text, csr.public_key)
            )
        ):
            return Refusal(_refused("key-statement-unknown", tenant))

        return Renewal(
            admission=Admission(
                tenant=tenant,
                role=node.role,
                pool=node.pool,
                site=node.site,
                node_id=NodeId(node.id),
                allowed_kinds=certificate.allowed_kinds,
                node_key_uri=statement,
                certificate=shown.tbs_sha256,
            ),
            staged=Staged(),
            node_id=node.id,
            rekeys=node,
            ban_subjects=ban_subjects(held, csr.spki_sha256),
            bindings=(),
            renews=held,
        )

    def _is_proved(
        self, statement: str, shown: RenewalEvidence, text: bytes, key: PublicKey
    ) -> bool:
        proof = shown.proof
        return proof is not None and any(
            prover.proves_key(statement, proof, text, key) for prover in self._provers
        )


def _refused(reason: str, tenant: TenantId | None = None) -> Refused:
    return Refused(RENEWAL_ATTESTOR, reason, tenant_id=tenant)
