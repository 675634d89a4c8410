"""The seal of a request, opened: the same step for a join and for a renewal."""

from datetime import datetime

from watchword.handlers.crypto.csr import Csr
from watchword.handlers.crypto.join_crypto import JoinCrypto
from watchword.handlers.errors import Refused, SealBroken, SealKeyUnknown
from watchword.handlers.join.candidate import Candidate, Judgement, NotJudged, Refusal
from watchword.handlers.rows import INVALID
from watchword.schemas.canonical import read_length_prefixed
from watchword.schemas.errors import SchemaError
from watchword.schemas.ids import JOIN
from watchword.schemas.requests import Claims, JoinRequest


def unsealed(
    crypto: JoinCrypto, candidate: Candidate, request: JoinRequest, csr: Csr, now: datetime
) -> tuple[bytes, Claims] | Judgement:
    """Return payload and claims, which the candidate gets too, or the judgement of who sealed it wrongly."""
    try:
        opened = crypto.unseal(
            request.encryption_key_id, candidate.sealed, request.info(csr.sha256), now
        )
    except SealKeyUnknown:
        return Refusal(Refused(JOIN, "sealing-key"))
    except SealBroken:
        return Refusal(Refused(JOIN, "unseal"))
    try:
        payload, encoded = read_length_prefixed(opened, 2)
        candidate.claims = claims = Claims.read(encoded)
    except SchemaError:
        return NotJudged(INVALID, "claims-malformed")
    return payload, claims
