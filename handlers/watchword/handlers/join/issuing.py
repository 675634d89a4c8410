"""Certificates for all that may be admitted, ordered in one call, speculatively."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from watchword.handlers.crypto.profile import CertificateOrder, OrderRefused
from watchword.handlers.crypto.signer import Signer
from watchword.handlers.join.candidate import Admit, Broken, Candidate

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Validity:
    """How long certificates hold, and after which part of that they are to be renewed."""

    lifetime: timedelta = timedelta(days=7)
    renew_fraction: float = 2 / 3


async def certify(
    candidates: Sequence[Candidate], now: datetime, signer: Signer, validity: Validity
) -> None:
    """Set `certificate` and `renew_after` of every admission to which nothing objects.

    Raises:
        SignerUnavailable: no certificates to be had.
    """
    admits: list[tuple[Candidate, Admit]] = [
        (c, c.judgement)
        for c in candidates
        if isinstance(c.judgement, Admit) and c.judgement.objection is None
    ]
    not_after = now + validity.lifetime
    while admits:
        try:
            issued = await signer.issue([_order(c, admit, now, not_after) for c, admit in admits])
        except OrderRefused as error:
            # Our own bug: this one alone.
            candidate, _ = admits.pop(error.index)
            _log.error(
                "certificate order refused",
                attestor=candidate.attestor,
                problem=error.problem,
                request_id=candidate.question.request_id,
            )
            candidate.judgement = Broken("order refused")
            continue
        for (_, admit), certificate in zip(admits, issued, strict=True):
            admit.certificate = certificate
            life = certificate.not_after - certificate.not_before
            admit.renew_after = certificate.not_before + life * validity.renew_fraction
        return


def _order(
    candidate: Candidate, admit: Admit, now: datetime, not_after: datetime
) -> CertificateOrder:
    if candidate.csr is None:
        message = "the candidate was not read"
        raise RuntimeError(message)
    return CertificateOrder(
        spki_der=candidate.csr.spki_der,
        tenant=admit.admission.tenant if admit.rekeys is None else admit.rekeys.tenant,
        node_id=admit.node_text,
        node_key_uri=admit.admission.node_key_uri,
        not_before=now,
        not_after=not_after,
    )
