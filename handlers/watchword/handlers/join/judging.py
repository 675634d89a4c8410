"""Phase A: read and verify, without a transaction.

The order of checks; the first that fails is the reason (the numbers are DESIGN's, section 5):
  1. decode, sizes, CSR, key policy (`Candidate`), proof of possession;
  2. the attestor is known, and lists the role;
  3. the CSR was not admitted before (the public key is looked at under the locks);
  4. the seal opens; the attestor verifies;
  5. the key statement can be proved again;
  6. the token's `expect` against the claims;
  8. to 10. which node (`reclaim`), and 11. the policy: noted as an objection, because
  7. bans come first, and are read under the locks.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog
from uuid_utils.compat import uuid7

from watchword.handlers.attestor import (
    Admission,
    Approval,
    Challenge,
    Evidence,
    JoinContext,
    RawTransaction,
    Staged,
    Subject,
)
from watchword.handlers.catalog import Catalog, Registered
from watchword.handlers.crypto.csr import check_possession
from watchword.handlers.crypto.join_crypto import JoinCrypto
from watchword.handlers.crypto.profile import CertificateOrder, OrderRefused
from watchword.handlers.errors import InvalidInput, Refused, SealBroken, StoreRejected, Unavailable
from watchword.handlers.join.candidate import (
    Admit,
    Again,
    Broken,
    Candidate,
    Challenged,
    Judgement,
    NotJudged,
    Refusal,
    Waits,
)
from watchword.handlers.join.expectations import meets
from watchword.handlers.join.policy import JoinPolicy
from watchword.handlers.join.ports import INVALID, UNSUPPORTED, Look, NodeRow, Pair
from watchword.handlers.join.reading import Bindings, Loader, Nodes, Tokens
from watchword.handlers.join.reclaim import which_node
from watchword.schemas.canonical import read_length_prefixed
from watchword.schemas.errors import SchemaError
from watchword.schemas.ids import AttestorId, UnverifiedPayload
from watchword.schemas.requests import Claims

_log = structlog.get_logger(__name__)

JOIN = AttestorId("join")

LATE_IN_A_ROW = 5
"""After so many time-outs in a row an attestor is not asked for `REST`, so that the partition flows."""

REST = timedelta(seconds=30)

_BREATH = 16
"""After so many requests of pure computing the loop may turn."""


@dataclass(frozen=True, slots=True)
class JudgingOptions:
    """What the deployment has decided about admissions."""

    lifetime: timedelta = timedelta(days=7)
    """How long a node's certificate is valid."""
    renew_fraction: float = 2 / 3
    """After which part of its life a certificate is to be renewed."""
    verify_seconds: float = 2.0
    """How long an attestor may take."""


class Judge:
    """Judges the candidates of an attempt as far as it can be done without locks."""

    def __init__(
        self, catalog: Catalog, crypto: JoinCrypto, policy: JoinPolicy, options: JudgingOptions
    ) -> None:
        """Take the collaborators; the judge keeps only how late attestors have been."""
        self._catalog = catalog
        self._crypto = crypto
        self._policy = policy
        self._options = options
        self._late: dict[str, int] = {}
        self._resting_until: dict[str, datetime] = {}

    def registered(self, candidate: Candidate) -> Registered | None:
        """Return the attestor that a candidate asks for, if it is installed."""
        return None if candidate.attestor is None else self._catalog.get(candidate.attestor)

    async def judge(
        self,
        candidates: Sequence[Candidate],
        look: Look,
        loader: Loader,
        *,
        tx: RawTransaction | None = None,
    ) -> None:
        """Set the judgement of every candidate that has none; `tx` is the lane's.

        Raises:
            StoreUnavailable, StoreRejected: a typed read failed: the whole attempt is tried again.
            SignerUnavailable: no certificates to be had.
        """
        to_verify: list[tuple[Candidate, Registered, Evidence]] = []
        for nth, candidate in enumerate(candidates):
            if candidate.judgement is None:
                found = self._examine(candidate, look)
                if isinstance(found, tuple):
                    to_verify.append((candidate, *found))
                else:
                    candidate.judgement = found
            if nth % _BREATH == _BREATH - 1:
                await asyncio.sleep(0)
        await self._verify_all(to_verify, look.now, loader, tx)
        await self._certify([c for c, _, _ in to_verify], look.now)

    def _examine(self, candidate: Candidate, look: Look) -> Judgement | tuple[Registered, Evidence]:
        # Step 1
        request, csr = candidate.request, candidate.csr
        if candidate.problem is not None or request is None or csr is None:
            return candidate.problem or NotJudged(INVALID, "undecodable", dead_letter=True)
        if not candidate.possession:
            try:
                check_possession(csr)
            except InvalidInput as error:
                return NotJudged(INVALID, error.reason)
            candidate.possession = True

        # Step 2
        attestor = request.resolved_attestor()
        registered = self._catalog.get(attestor)
        if registered is None:
            return NotJudged(UNSUPPORTED, "unknown-attestor")
        if request.role not in registered.attestor.roles:
            return Refusal(Refused(JOIN, "role-not-listed"))

        # Step 3
        if candidate.admitted_before is not None:
            return Again(candidate.admitted_before)

        # Step 4
        try:
            opened = self._crypto.unseal(
                request.encryption_key_id, candidate.sealed, request.info(csr.sha256), look.now
            )
        except SealBroken:
            return Refusal(Refused(JOIN, "unseal"))
        try:
            payload, claims = read_length_prefixed(opened, 2)
            candidate.claims = Claims.read(claims)
        except SchemaError:
            return NotJudged(INVALID, "claims-malformed")
        return registered, Evidence(UnverifiedPayload(payload), candidate.claims)

    async def _verify_all(
        self,
        asked: Sequence[tuple[Candidate, Registered, Evidence]],
        now: datetime,
        loader: Loader,
        tx: RawTransaction | None,
    ) -> None:
        """Run all verifications together, each with its deadline; all have ended on return."""
        tasks: dict[asyncio.Task[Judgement], tuple[Candidate, Registered]] = {}
        try:
            for candidate, registered, evidence in asked:
                resting = self._resting_until.get(registered.attestor.id)
                if resting is not None and now < resting:
                    candidate.judgement = Broken("resting after time-outs")
                    continue
                work = self._verify(
                    candidate,
                    registered,
                    evidence,
                    self._context(candidate, registered, now, loader, tx),
                    loader,
                )
                tasks[asyncio.create_task(work)] = (candidate, registered)
            if tasks:
                # Inside a transaction less: a session that idles in one for 2 s is ended by PostgreSQL.
                seconds = self._options.verify_seconds * (1 if tx is None else 0.75)
                await asyncio.wait(tasks, timeout=seconds)
        finally:
            unfinished = [task for task in tasks if not task.done()]
            for task in unfinished:
                task.cancel()
            if unfinished:
                await asyncio.gather(*unfinished, return_exceptions=True)
        for task, (candidate, registered) in tasks.items():
            if task.cancelled():
                self._count_late(registered, now)
                candidate.judgement = Broken("too late")
            else:
                self._late[registered.attestor.id] = 0
                candidate.judgement = task.result()

    def _count_late(self, registered: Registered, now: datetime) -> None:
        name = registered.attestor.id
        self._late[name] = self._late.get(name, 0) + 1
        _log.warning("attestor too late", attestor=name, in_a_row=self._late[name])
        if self._late[name] >= LATE_IN_A_ROW:
            self._late[name] = 0
            self._resting_until[name] = now + REST

    async def _verify(
        self,
        candidate: Candidate,
        registered: Registered,
        evidence: Evidence,
        context: JoinContext,
        loader: Loader,
    ) -> Judgement:
        try:
            found = await registered.attestor.verify(evidence, context)
            return await self._conclude(candidate, registered, found, context.staged, loader)
        except Refused as refused:
            return Refusal(self._declared(registered, refused))
        except (Unavailable, StoreRejected):
            raise  # the batch is tried again: not the attestor's doing
        except Exception as error:  # noqa: BLE001 - whatever a verifier raises is a bug, never an admission
            # The message may quote evidence; the type and the place do not.
            _log.error(
                "attestor broke",
                attestor=registered.attestor.id,
                error=type(error).__name__,
                where=place_of(error),
            )
            return Broken(type(error).__name__)

    def _context(
        self,
        candidate: Candidate,
        registered: Registered,
        now: datetime,
        loader: Loader,
        tx: RawTransaction | None,
    ) -> JoinContext:
        """Return what the verifier of a candidate may know and do."""
        request, csr = candidate.request, candidate.csr
        if request is None or csr is None:
            message = "the candidate was not read"
            raise RuntimeError(message)
        attestor = registered.attestor
        states = self._crypto.states

        def seal(data: bytes, expires_at: datetime) -> bytes:
            return states.seal(
                data,
                attestor=attestor.id,
                attestor_version=attestor.version,
                role=request.role,
                csr_sha256=csr.sha256,
                expires_at=expires_at,
                now=now,
            )

        def unseal(state: bytes) -> bytes:
            return states.open(
                state,
                attestor=attestor.id,
                attestor_version=attestor.version,
                role=request.role,
                csr_sha256=csr.sha256,
                now=now,
            )

        return JoinContext(
            attestor=AttestorId(attestor.id),
            csr_sha256=csr.sha256,
            public_key=csr.public_key,
            role=request.role,
            now=now,
            tokens=Tokens(loader, candidate.reads),
            nodes=Nodes(loader, candidate.reads),
            bindings=Bindings(loader, candidate.reads, attestor.id),
            staged=Staged(),
            state=candidate.state,
            seal=seal,
            unseal=unseal,
            tx=tx,
        )

    def _declared(self, registered: Registered, refused: Refused) -> Refused:
        """Return the refusal under the attestor's own id and a declared reason, whatever was raised."""
        if refused.attestor == JOIN:
            return refused
        name = registered.reason(refused.reason).name
        return Refused(AttestorId(registered.attestor.id), name, tenant_id=refused.tenant_id)

    async def _conclude(
        self,
        candidate: Candidate,
        registered: Registered,
        found: object,
        staged: Staged,
        loader: Loader,
    ) -> Judgement:
        """Return what follows from the verifier's result: steps 5 to 11, without the bans.

        Raises:
            Refused: a check of the core's failed.
        """
        attestor = AttestorId(registered.attestor.id)
        if isinstance(found, Challenge | Approval):
            if staged.spends or staged.uses:
                _log.error("spends staged with a deferral", attestor=attestor)
                return Broken("spends staged with a deferral")
            return Challenged(found) if isinstance(found, Challenge) else Waits(found)
        if not isinstance(found, Admission):
            _log.error(
                "attestor returned no admission", attestor=attestor, type=type(found).__name__
            )
            return Broken("no admission")
        request, claims = candidate.request, candidate.claims
        if request is None or claims is None or found.role != request.role:
            _log.error("attestor returned another role", attestor=attestor)
            return Broken("another role")

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
            if not meets(token.expect, claims):
                raise Refused(JOIN, "expect-mismatch", tenant_id=found.tenant)

        # Steps 8 to 11
        objection: Refused | None = None
        node_id = uuid7()
        rekeys: NodeRow | None = None
        bindings: tuple[Pair, ...] = ()
        try:
            place = await which_node(
                attestor, found, token, Nodes(loader, candidate.reads), loader, candidate.reads
            )
            bindings = place.bindings
            if place.rekeys is not None:
                node_id, rekeys = place.rekeys.id, place.rekeys
            if not self._policy.allows(attestor, found):
                raise Refused(JOIN, "not-allowed", tenant_id=found.tenant)  # noqa: TRY301 - one of several places
        except Refused as refused:
            objection = refused
        return Admit(
            admission=found,
            staged=staged,
            node_id=node_id,
            rekeys=rekeys,
            ban_subjects=_ban_subjects(candidate, found),
            bindings=bindings,
            objection=objection,
        )

    async def _certify(self, candidates: Sequence[Candidate], now: datetime) -> None:
        """Issue certificates for all that may be admitted, in one call, speculatively."""
        admits: list[tuple[Candidate, Admit]] = [
            (c, c.judgement)
            for c in candidates
            if isinstance(c.judgement, Admit) and c.judgement.objection is None
        ]
        not_after = now + self._options.lifetime
        while admits:
            orders = [self._order(candidate, admit, now, not_after) for candidate, admit in admits]
            try:
                issued = await self._crypto.signer.issue(orders)
            except OrderRefused as error:
                # Our own bug, or an attestor's tenant that is no slug: this one alone.
                candidate, _ = admits.pop(error.index)
                _log.error(
                    "certificate order refused", attestor=candidate.attestor, problem=error.problem
                )
                candidate.judgement = Broken("order refused")
                continue
            for (_, admit), certificate in zip(admits, issued, strict=True):
                admit.certificate = certificate
                life = certificate.not_after - certificate.not_before
                admit.renew_after = certificate.not_before + life * self._options.renew_fraction
            return

    def _order(
        self, candidate: Candidate, admit: Admit, now: datetime, not_after: datetime
    ) -> CertificateOrder:
        if candidate.csr is None:
            message = "the candidate was not read"
            raise RuntimeError(message)
        return CertificateOrder(
            spki_der=candidate.csr.spki_der,
            tenant=admit.admission.tenant if admit.rekeys is None else admit.rekeys.tenant,
            node_id=str(admit.node_id),
            node_key_uri=admit.admission.node_key_uri,
            not_before=now,
            not_after=not_after,
        )


def _ban_subjects(candidate: Candidate, admission: Admission) -> tuple[bytes, ...]:
    """Return every proven subject of an admission by which it may be banned."""
    subjects = [subject.digest for subject in admission.subjects]
    if admission.token_id is not None:
        subjects.append(Subject("token", admission.token_id).digest)
    if admission.site is not None:
        subjects.append(Subject("site", f"{admission.tenant}/{admission.site}").digest)
    if admission.hardware_key is not None:
        subjects.append(Subject("hardware-key", admission.hardware_key).digest)
    if admission.node_key_uri is not None:
        subjects.append(Subject("node-key", admission.node_key_uri).digest)
    if candidate.csr is not None:
        subjects.append(Subject("spki", candidate.csr.spki_sha256.hex()).digest)
    return tuple(subjects)


def place_of(error: BaseException) -> str:
    """Return file and line where an exception was raised: no values."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return (
        "?"
        if traceback is None
        else f"{traceback.tb_frame.f_code.co_filename.rsplit('/', 1)[-1]}:{traceback.tb_lineno}"
    )
