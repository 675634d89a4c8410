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
import traceback
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial

import structlog
from structlog.contextvars import bind_contextvars

from watchword.handlers.attestor import (
    Evidence,
    JoinContext,
    NobodyElse,
    OtherProofs,
    Staged,
    is_digest,
)
from watchword.handlers.catalog import Catalog, Registered
from watchword.handlers.crypto.commands import FetchEvidence
from watchword.handlers.crypto.csr import check_possession
from watchword.handlers.crypto.join_crypto import JoinCrypto
from watchword.handlers.crypto.renewals import RenewalEvidence
from watchword.handlers.definition import at_once
from watchword.handlers.errors import (
    InvalidInput,
    OutOfMemory,
    Refused,
    StoreRejected,
    Unavailable,
    place_of,
)
from watchword.handlers.join.candidate import (
    Again,
    Broken,
    Candidate,
    Judgement,
    NotJudged,
    Refusal,
)
from watchword.handlers.join.concluding import Conclusions
from watchword.handlers.join.contract import is_slug
from watchword.handlers.join.fetching import Fetches
from watchword.handlers.join.issuing import Validity, certify
from watchword.handlers.join.loading import Loader
from watchword.handlers.join.patience import Patience, Work
from watchword.handlers.join.policy import JoinPolicy
from watchword.handlers.join.ports import Lane
from watchword.handlers.join.proving import NoWord, Proving
from watchword.handlers.join.reading import Anchors, Bindings, Nodes, Requests, Tokens
from watchword.handlers.join.renewing import Renewals
from watchword.handlers.join.states import States
from watchword.handlers.join.tracing import Tracing
from watchword.handlers.join.unsealing import unsealed
from watchword.handlers.rows import INVALID, UNSUPPORTED, Look
from watchword.schemas.ids import JOIN, AttestorId, UnverifiedPayload
from watchword.schemas.requests import Claims

_log = structlog.get_logger(__name__)

_ROOM_BYTES = 64 * 1024 * 1024
"""With less than this left, whatever ran beside a verifier may have lost something."""

_BREATH = 16
"""After so many requests of pure computing the loop may turn."""


@dataclass(frozen=True, slots=True)
class JudgingOptions:
    """What the deployment has decided about admissions."""

    validity: Validity = field(default_factory=Validity)
    verify_seconds: float = 2.0
    """How long an attestor may take."""
    retry_after_seconds: int = 30
    """When a machine that waits for an operator is to ask again; the same for all."""
    tracing: Tracing | None = None


class Judge:
    """Judges the candidates of an attempt as far as it can be done without locks."""

    def __init__(
        self, catalog: Catalog, crypto: JoinCrypto, policy: JoinPolicy, options: JudgingOptions
    ) -> None:
        """Take the collaborators."""
        self.tracing = options.tracing
        self._catalog = catalog
        self._crypto = crypto
        self._renewals = Renewals(crypto, catalog.proving_keys())
        self._fetches = Fetches(crypto)
        self._validity = options.validity
        self._patience = Patience(
            options.verify_seconds,
            {
                str(found.attestor.id): most
                for found in catalog
                if (most := at_once(found.attestor))
            },
        )
        self._conclusions = Conclusions(
            crypto, policy, timedelta(seconds=options.retry_after_seconds)
        )

    def registered(self, candidate: Candidate) -> Registered | None:
        """Return the attestor that a candidate asks for, if it is installed."""
        return None if candidate.attestor is None else self._catalog.get(candidate.attestor)

    async def judge(
        self,
        candidates: Sequence[Candidate],
        look: Look,
        loader: Loader,
        *,
        tx: Lane | None = None,
    ) -> None:
        """Set the judgement of every candidate that has none, and order certificates; `tx` is the lane's.

        Raises:
            StoreUnavailable, StoreRejected: a typed read failed: the whole attempt is tried again.
            SignerUnavailable: no certificates to be had.
        """
        asked = await self.examine(candidates, look, loader, tx=tx)
        await certify(asked, look.now, self._crypto.signer, self._validity)

    async def examine(
        self,
        candidates: Sequence[Candidate],
        look: Look,
        loader: Loader,
        *,
        tx: Lane | None = None,
    ) -> list[Candidate]:
        """Set the judgement of every candidate that has none, without a certificate; return those that may get one.

        Raises:
            StoreUnavailable, StoreRejected: a typed read failed.
        """
        to_verify: list[tuple[Candidate, Registered, Evidence]] = []
        to_fetch: list[tuple[Candidate, FetchEvidence]] = []
        to_renew: list[tuple[Candidate, RenewalEvidence]] = []
        for nth, candidate in enumerate(candidates):
            if candidate.judgement is None:
                found = self._examine(candidate, look)
                if isinstance(found, tuple):
                    to_verify.append((candidate, *found))
                elif isinstance(found, RenewalEvidence):
                    to_renew.append((candidate, found))
                elif isinstance(found, FetchEvidence):
                    to_fetch.append((candidate, found))
                else:
                    candidate.judgement = found
            if nth % _BREATH == _BREATH - 1:
                await asyncio.sleep(0)
        loader.has_grants = look.has_grants
        with self._together(to_renew):
            if to_renew:
                await self._renewals.judge(to_renew, loader, look.now)
        with self._together(to_fetch):
            if to_fetch:
                await self._fetches.judge(to_fetch, loader, look.now)
        await self._verify_all(to_verify, look.now, loader, tx)
        return [c for c, _ in to_renew] + [c for c, _, _ in to_verify]

    def _examine(
        self, candidate: Candidate, look: Look
    ) -> Judgement | RenewalEvidence | FetchEvidence | tuple[Registered, Evidence]:
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

        if candidate.renews:
            return self._renewals.examine(candidate, look.now)
        if candidate.fetches:
            return self._fetches.examine(candidate, look.now)

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
        found = unsealed(self._crypto, candidate, request, csr, look.now)
        if not isinstance(found, tuple):
            return found
        payload, claims = found
        return registered, Evidence(UnverifiedPayload(payload), claims)

    def _together(self, asked: Sequence[tuple[Candidate, object]]) -> AbstractContextManager[None]:
        traced = self.tracing if asked else None
        return nullcontext() if traced is None else traced.judging_together([c for c, _ in asked])

    async def _verify_all(
        self,
        asked: Sequence[tuple[Candidate, Registered, Evidence]],
        now: datetime,
        loader: Loader,
        tx: Lane | None,
    ) -> None:
        """Set the judgement of every candidate whose attestor is to be asked."""
        asking: list[Candidate] = []
        works: list[tuple[str, Work]] = []
        for candidate, registered, evidence in asked:
            attestor = registered.attestor.id
            if self._patience.rests(attestor, now):
                candidate.judgement = Broken("resting after time-outs")
                continue
            others = self._others(candidate, registered, evidence.claims, now, loader)
            context = self._context(candidate, registered, now, loader, others, tx)
            work = self._verify(candidate, registered, evidence, context, others, loader)
            if self.tracing is not None:
                work = self.tracing.judging(candidate, work)
            asking.append(candidate)
            works.append((attestor, work))
        found = await self._patience.run(works, now, lane=tx, waits_for=loader.waits_for)
        if loader.failure is not None:
            # Also if a verifier has caught it: what it made of a read that failed is no verdict.
            raise loader.failure
        for candidate, judgement in zip(asking, found, strict=True):
            candidate.judgement = judgement

    async def _verify(
        self,
        candidate: Candidate,
        registered: Registered,
        evidence: Evidence,
        context: JoinContext,
        others: Proving,
        loader: Loader,
    ) -> Judgement:
        # This is a task of its own, and so is what it binds: every line from here on, an author's too, has it.
        bind_contextvars(request_id=candidate.question.request_id)
        try:
            try:
                found = await registered.attestor.verify(evidence, context)
            except Refused as refused:
                return Refusal(others.refused or _declared(registered, refused))
            if others.refused is not None:
                return Refusal(others.refused)
            # A copy: what a verifier left running must not add to it.
            was = context.staged
            staged = Staged(list(was.spends), list(was.uses), was.approval)
            return await self._conclusions.conclude(
                candidate, registered, found, staged, others, context.now, loader
            )
        except Refused as refused:
            return Refusal(refused)
        except (Unavailable, StoreRejected):
            raise  # the batch is tried again: not the attestor's doing
        except (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit):
            raise
        except MemoryError as error:
            where, is_full = place_of(error), not has_room()
            # What its frames hold goes at once, so that there is room to say so.
            traceback.clear_frames(error.__traceback__)
            if is_full:
                raise OutOfMemory(registered.attestor.id, where) from None
            # One absurd size, from evidence perhaps: nobody else has lost anything.
            _log.error(
                "attestor broke", attestor=registered.attestor.id, error="MemoryError", where=where
            )
            return Broken("MemoryError")
        except BaseException as error:  # noqa: BLE001 - whatever a verifier raises is a bug, never an admission; SystemExit too
            # The message may quote evidence; the type and the place do not.
            _log.error(
                "attestor broke",
                attestor=registered.attestor.id,
                error=type(error).__name__,
                where=place_of(error),
            )
            return Broken(type(error).__name__)

    def _others(
        self,
        candidate: Candidate,
        registered: Registered,
        claims: Claims,
        now: datetime,
        loader: Loader,
    ) -> Proving:
        """Return what lets the verifier of a candidate ask another attestor."""
        if candidate.request is None:
            message = "the candidate was not read"
            raise RuntimeError(message)
        role = candidate.request.role
        context_of = partial(self._context_of_other, candidate, now, loader)
        return Proving(self._catalog, registered, role, claims, context_of, _declared)

    def _context_of_other(
        self,
        candidate: Candidate,
        now: datetime,
        loader: Loader,
        other: Registered,
        state: bytes | None,
    ) -> JoinContext:
        context = self._context(candidate, other, now, loader)
        return replace(context, requests=NoWord(), state=state)

    def _context(
        self,
        candidate: Candidate,
        registered: Registered,
        now: datetime,
        loader: Loader,
        others: OtherProofs | None = None,
        tx: Lane | None = None,
    ) -> JoinContext:
        """Return what a verifier of a candidate may know and do."""
        request, csr = candidate.request, candidate.csr
        if request is None or csr is None:
            message = "the candidate was not read"
            raise RuntimeError(message)
        attestor = registered.attestor
        states = States(self._crypto.states, attestor, request.role, csr.sha256, now)
        staged = Staged()
        return JoinContext(
            attestor=AttestorId(attestor.id),
            csr_sha256=csr.sha256,
            public_key=csr.public_key,
            role=request.role,
            now=now,
            tokens=Tokens(loader, candidate.reads),
            nodes=Nodes(loader, candidate.reads, candidate.seen),
            bindings=Bindings(loader, candidate.reads, attestor.id),
            requests=Requests(loader, candidate.reads, attestor.id, csr.sha256, now, staged),
            anchors=Anchors(loader, candidate.seen),
            staged=staged,
            state=candidate.state,
            seal=states.seal,
            unseal=states.open,
            others=others or NobodyElse(),
            tx=tx,
        )


def _declared(registered: Registered, refused: Refused) -> Refused:
    """Return the refusal under the attestor's own id and a declared reason, whatever was raised.

    A tenant that is no tenant's name is left out: the stream of root gets the refusal.
    """
    tenant = refused.tenant_id
    if tenant is not None and not is_slug(tenant):
        _log.error("refusal with a malformed tenant", attestor=registered.attestor.id)
        tenant = None
    name = registered.reason(refused.reason).name
    tried = refused.tried if is_digest(refused.tried) else None
    return Refused(AttestorId(registered.attestor.id), name, tenant_id=tenant, tried=tried)


def has_room() -> bool:
    """Tell whether the process could still have what others need beside a verifier."""
    try:
        return bool(bytearray(_ROOM_BYTES))
    except MemoryError:
        return False
