"""A node asks for its commands: phase A of a request of kind `commands`.

The order of checks; the first that fails is the reason. Shape, key policy and proof of possession of the
CSR's key come before, as for a join (`judging`); locks, bans and the commands themselves after (`deciding`,
`dispatching`). The CSR is for the certificate's own key, and is admitted to nothing.
  1. the envelope is that of a request for commands: the attestor is `command`, and no challenge is answered;
  2. the answer can be sealed: what commands say is for their node alone;
  3. the seal opens, and what is in it has the form of a request for commands;
  4. the certificate is known, held and in force (`holding`);
  5. it is the node's current one, and the CSR is for its key.
A node that may have none any more (`node-state`) is refused like all others, and what waits for it with it.
Where nothing waits and nothing is reported the answer is given at once, and nothing is written.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime

from watchword.handlers.crypto import hpke
from watchword.handlers.crypto.commands import FetchEvidence, signed_text
from watchword.handlers.crypto.join_crypto import JoinCrypto
from watchword.handlers.errors import Refused, SealBroken
from watchword.handlers.join.candidate import (
    Candidate,
    Fetch,
    Judgement,
    NothingWaits,
    NotJudged,
    Refusal,
)
from watchword.handlers.join.holding import Shown, ban_subjects, checked, read_certificates
from watchword.handlers.join.loading import Loader
from watchword.handlers.join.unsealing import unsealed
from watchword.handlers.rows import INVALID, UNSUPPORTED, Renewable
from watchword.schemas.errors import SchemaError
from watchword.schemas.ids import TenantId
from watchword.schemas.requests import COMMAND_ATTESTOR

_BREATH = 16
"""After so many signatures the loop may turn."""


class Fetches:
    """Judges requests for commands as far as it can be done without locks."""

    def __init__(self, crypto: JoinCrypto) -> None:
        """Take the crypto."""
        self._crypto = crypto

    def examine(self, candidate: Candidate, now: datetime) -> Judgement | FetchEvidence:
        """Do steps 1 to 3 for a candidate that has proved possession of its CSR's key."""
        request, csr = candidate.request, candidate.csr
        if request is None or csr is None:
            return NotJudged(INVALID, "undecodable", dead_letter=True)

        # Step 1
        if request.resolved_attestor() != COMMAND_ATTESTOR or candidate.state is not None:
            return NotJudged(UNSUPPORTED, "unknown-attestor")

        # Step 2
        try:
            hpke.check_public(candidate.question.reply_key or b"")
        except SealBroken:
            return Refusal(_refused("reply-key"))

        # Step 3
        found = unsealed(self._crypto, candidate, request, csr, now)
        if not isinstance(found, tuple):
            return found
        payload, _ = found
        try:
            return FetchEvidence.decode(payload)
        except SchemaError:
            return Refusal(_refused("malformed"))

    async def judge(
        self, asked: Sequence[tuple[Candidate, FetchEvidence]], loader: Loader, now: datetime
    ) -> None:
        """Set the judgements of candidates that were examined, after two queries for all.

        Raises:
            StoreUnavailable, StoreRejected: a read failed.
        """
        rows = await read_certificates(loader, [shown.tbs_sha256 for _, shown in asked])
        nodes = {known.node.id for known in rows if known is not None}
        waiting = await loader.get_all(loader.open_commands, sorted(nodes))
        has_open = {
            node for node, count in zip(sorted(nodes), waiting, strict=True) if count is not None
        }
        for nth, ((candidate, shown), known) in enumerate(zip(asked, rows, strict=True)):
            is_open = known is not None and known.node.id in has_open
            candidate.judgement = _judged(candidate, shown, known, now, is_open=is_open)
            if nth % _BREATH == _BREATH - 1:
                await asyncio.sleep(0)


def _judged(
    candidate: Candidate,
    evidence: FetchEvidence,
    known: Renewable | None,
    now: datetime,
    *,
    is_open: bool,
) -> Judgement:
    request, csr = candidate.request, candidate.csr
    if request is None or csr is None:
        return NotJudged(INVALID, "undecodable", dead_letter=True)

    # Step 4
    text = signed_text(evidence.tbs_sha256, csr.sha256, request.request_id, evidence.reports)
    shown = Shown(evidence.tbs_sha256, evidence.spki_der, evidence.signature, text)
    held = checked(COMMAND_ATTESTOR, candidate, request.role, shown, known, now)
    if isinstance(held, Refused):
        if known is not None and held.reason == "node-state" and is_open:
            return Fetch(known, (), (), stopped=held)
        return Refusal(held)

    # Step 5
    tenant = TenantId(held.node.tenant)
    if not held.certificate.is_current:
        return Refusal(_refused("superseded", tenant))
    if csr.spki_sha256 != held.certificate.spki_sha256:
        return Refusal(_refused("signature", tenant))

    if not is_open and not evidence.reports.items and held.node.state == "active":
        return NothingWaits()
    return Fetch(held, evidence.reports.items, ban_subjects(held, csr.spki_sha256))


def _refused(reason: str, tenant: TenantId | None = None) -> Refused:
    return Refused(COMMAND_ATTESTOR, reason, tenant_id=tenant)
