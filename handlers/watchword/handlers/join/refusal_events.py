"""A refusal as its event: the same from the transaction that records it and, later, from its row. Pure."""

from collections.abc import Iterable
from datetime import datetime
from ipaddress import ip_address

from watchword.handlers.rows import RefusalRow
from watchword.schemas.events import JoinRefused
from watchword.schemas.reasons import Reason
from watchword.schemas.requests import ADDRESS_HEADER
from watchword.schemas.times import rfc3339

_LONGEST = 45
"""Characters of an IPv6 address at most."""


def refusal_event(row: RefusalRow, reason: Reason, *, worker: str, at: datetime) -> JoinRefused:
    """Return the event of a row; nothing in it comes from the machine but hashes, and a checked address."""
    return JoinRefused(
        id=str(row.event_id),
        type="security.join.refused" if row.type == "refused" else "security.join.invalid",
        time=rfc3339(at),
        tenant=row.tenant,
        attestor=row.attestor,
        reason=row.reason,
        refusal=f"{row.attestor}:{row.reason}",
        code=reason.code,
        severity=reason.severity,
        role=row.role,
        csr_sha256=_hex(row.csr_sha256),
        claimed_hardware_key_sha256=_hex(row.hardware_key_sha256),
        request_id=row.request_id,
        request_sha256=row.request_sha256.hex(),
        topic=row.topic,
        partition=row.partition,
        offset=row.offset,
        worker=worker,
        sentence=reason.sentence,
        attack=reason.attack,
        tried_sha256=_hex(row.tried_sha256),
        claimed_address=row.address,
    )


def claimed_address(headers: Iterable[tuple[str, bytes | None]]) -> str | None:
    """Return the address that a gateway has written beside a request, in its one form; None for anything else.

    Whoever may write to `join.requests` can write any: it is a claim, and is bounded and parsed. Of an IPv6
    address it is the beginning of its /64, by which the gateway's limits count too.
    """
    for name, value in headers:
        if name == ADDRESS_HEADER and value is not None and len(value) <= _LONGEST:
            try:
                text = value.decode("ascii").partition("/")[0].partition("%")[0]
                return ip_address(text).compressed
            except ValueError:
                return None
    return None


def _hex(digest: bytes | None) -> str | None:
    return None if digest is None else digest.hex()
