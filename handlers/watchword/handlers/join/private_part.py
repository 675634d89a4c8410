"""The private part of a journal entry: what `rebuild` folds, and nobody is told.

Rows with bytes in base64 and times as microseconds since the epoch.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import orjson

from watchword.handlers.join.candidate import Admit, Candidate, Renewal
from watchword.handlers.join.deciding import use_claims
from watchword.handlers.rows import (
    Digest,
    NewCertificate,
    NewNode,
    NewRequest,
    RequestKey,
    RequestRow,
)
from watchword.schemas.canonical import b64
from watchword.schemas.times import microseconds


def joined_private(
    candidate: Candidate,
    admit: Admit,
    node: NewNode,
    certificate: NewCertificate,
    superseded: Sequence[Digest],
    now: datetime,
) -> dict[str, Any]:
    """Return the rows of an admission."""
    at = microseconds(now)
    return {
        "node": {
            "id": admit.node_text,
            "tenant": node.tenant,
            "pool": node.pool,
            "site": node.site,
            "role": node.role,
            "state": "adopting",
            "attestor": node.attestor,
            "token_id": node.token_id,
            "node_key_uri": node.node_key_uri,
            "hardware_key": node.hardware_key
            or (admit.rekeys.hardware_key if admit.rekeys and admit.grant is None else None),
            "generation": 1 if admit.rekeys is None else admit.rekeys.generation + 1,
            "version": 1 if admit.rekeys is None else admit.rekeys.version + 1,
            "joined_at": at if admit.rekeys is None else None,
            "updated_at": at,
        },
        **certified_private(certificate, admit.node_text, now),
        "subjects": [
            {"kind": s.kind, "value": s.value, "subject": b64(s.digest)}
            for s in admit.admission.subjects
        ],
        "bindings": [
            {"attestor": attestor, "subject": b64(subject)} for attestor, subject in admit.bindings
        ],
        "uses": [
            {
                "attestor": attestor,
                "subject": b64(subject),
                "used_at": at,
                "expires_at": None if expires is None else microseconds(expires),
            }
            for (attestor, subject), expires in use_claims(candidate, admit).items()
            if (attestor, subject) not in admit.reused
        ],
        "unbound": [{"attestor": a, "subject": b64(s)} for a, s in admit.unbound],
        "grant": None
        if admit.grant is None
        else {
            "id": str(admit.grant),
            "state": "used",
            "used_at": at,
            "used_by": b64(certificate.csr_sha256),
        },
        "spent": dict.fromkeys(admit.staged.spends, 1),
        "token": admit.staged.spends[0] if admit.staged.spends else None,
        "approval": None
        if admit.approval is None
        else {
            "attestor": candidate.attestor,
            "subject": b64(admit.approval[0]),
            "csr_sha256": b64(certificate.csr_sha256),
        },
        "revoked": [b64(digest) for digest in superseded],
        "revoked_at": at if superseded else None,
        "revoked_why": "re-keyed" if superseded else None,
    }


def renewed_private(renewal: Renewal, certificate: NewCertificate, now: datetime) -> dict[str, Any]:
    """Return the rows of a renewal."""
    return {
        "node": {
            "id": renewal.node_text,
            "state": "active",
            "version": renewal.renews.node.version + 1,
            "updated_at": microseconds(now),
        },
        "superseded": b64(renewal.renews.csr_sha256),
        **certified_private(certificate, renewal.node_text, now),
    }


def certified_private(certificate: NewCertificate, node_text: str, now: datetime) -> dict[str, Any]:
    """Return the row of a new certificate, and its claims on CSR and key."""
    csr_sha256, spki_sha256 = b64(certificate.csr_sha256), b64(certificate.spki_sha256)
    kinds = certificate.allowed_kinds
    return {
        "certificate": {
            "csr_sha256": csr_sha256,
            "node_id": node_text,
            "serial": b64(certificate.serial),
            "tbs_sha256": b64(certificate.tbs_sha256),
            "spki_sha256": spki_sha256,
            "not_before": microseconds(certificate.not_before),
            "not_after": microseconds(certificate.not_after),
            "allowed_kinds": None if kinds is None else list(kinds),
            "node_key_uri": certificate.node_key_uri,
            "der": b64(certificate.der),
            "is_current": True,
            "issued_at": microseconds(now),
            "revoked_at": None,
            "revoked_why": None,
        },
        "claims": [
            {"kind": "csr", "subject": csr_sha256},
            {"kind": "key", "subject": spki_sha256},
        ],
    }


def waiting_private(
    key: RequestKey,
    request: NewRequest,
    row: RequestRow,
    *,
    renewed: bool,
    now: datetime,
    expires_at: datetime,
) -> dict[str, Any]:
    """Return the row of a join that waits for an operator."""
    return {
        "row": {
            "attestor": key[0],
            "subject": b64(key[1]),
            "csr_sha256": b64(key[2]),
            "id": str(row.id),
            "state": "pending",
            "version": row.version + 1 if renewed else 1,
            "snapshot": b64(request.snapshot),
            "tenant": request.tenant,
            "pool": request.pool,
            "site": request.site,
            "role": request.role,
            "claims": orjson.loads(request.claims),
            "facts": orjson.loads(request.facts),
            "request_id": request.request_id,
            "requested_at": microseconds(now),
            "expires_at": microseconds(expires_at),
            "decided_at": None,
            "decided_by": None,
            "comment": None,
        }
    }
