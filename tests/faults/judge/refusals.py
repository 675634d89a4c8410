"""Every refusal is recorded once; what is published and what is summarised make up all of them."""

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from tests.faults.judge.findings import Findings, Kind
from tests.faults.judge.ledger import INVALID, REFUSED, UNSUPPORTED, Ledger
from tests.faults.judge.tables import Row, Tables

Bucket = tuple[str, str, str]
"""Tenant, attestor and reason."""

_RECORDED = frozenset((2, 4, 5))
"""The inbox's outcomes that leave a row among the refusals."""

_CLAIM_TO_ROW_S = 2.5
"""Between the claim of a slot and the row's own time, at most: sessions idle in a transaction are
ended after 2 s. The bound is on claims, so the window that is looked at is shorter by this."""

Stretch = tuple[float, float]
"""From when to when, in seconds of the wall clock."""


@dataclass(frozen=True, slots=True)
class Bound:
    """How the deployment bounds published details."""

    limit: int
    """For one tenant stream, attestor and reason, in any window."""
    window_s: float
    attestor_limit: int
    """For all reasons of one attestor in a tenant's stream, beyond the exempt first of each."""
    exempt: int


@dataclass(slots=True)
class Refused:
    """What the refusals add up to."""

    rows: int = 0
    published: int = 0
    summarised: int = 0


async def check_refusals(
    ledger: Ledger, tables: Tables, bound: Bound, stalls: Sequence[Stretch], findings: Findings
) -> Refused:
    """Compare refusals with the inbox, with the details in the journal and with the summaries.

    `stalls` is when the server stood still: what was claimed before one may be recorded after it.
    """
    rows = await tables.rows(
        "SELECT tenant, attestor, reason, type, request_sha256, published, recorded_at FROM refusals ORDER BY recorded_at"
    )
    await _check_once_each(ledger, rows, tables, findings)
    await _check_details(rows, tables, ledger.injected_events, findings)
    summarised = await _check_sums(rows, tables, findings)
    _check_bound([row for row in rows if not _was_held(row, stalls)], bound, findings)
    return Refused(len(rows), sum(row["published"] for row in rows), summarised)


async def _check_once_each(
    ledger: Ledger, rows: Sequence[Row], tables: Tables, findings: Findings
) -> None:
    recorded = Counter(bytes(row["request_sha256"]) for row in rows)
    inbox = await tables.rows("SELECT digest, outcome, reason FROM inbox")
    due = {bytes(row["digest"]): row for row in inbox if row["outcome"] in _RECORDED}
    for digest in due.keys() - recorded.keys():
        findings.lost("outcome without its refusal row", digest.hex())
    for digest, count in recorded.items():
        if digest not in due:
            findings.wrong("refusal row without its outcome", digest.hex())
        elif count > 1:
            findings.duplicated("request with several refusal rows", f"{digest.hex()}: {count}")
    for row in rows:
        digest = bytes(row["request_sha256"])
        said = due.get(digest)
        name = f"{row['attestor']}:{row['reason']}"
        if said is not None and said["reason"] != name:
            findings.wrong("refusal row with another reason", f"{said['reason']}, {name}")
        asked = ledger.asked.get(digest)
        expected = "refused" if REFUSED in (asked.outcomes if asked else ()) else "invalid"
        if asked and row["type"] != expected and not asked.outcomes & {INVALID, UNSUPPORTED}:
            findings.wrong("refusal row of another type", f"{asked.kind}: {row['type']}")


async def _check_details(
    rows: Sequence[Row], tables: Tables, injected: set[str], findings: Findings
) -> None:
    """Each published row has its one detail in the journal, and each detail its published row."""
    details = await tables.rows(
        "SELECT event_id::text AS id, convert_from(value, 'UTF8')::jsonb ->> 'requestSha256' AS request, "
        "tenant FROM (SELECT event_id, value, headers ->> 'ce_tenantid' AS tenant FROM journal "
        "WHERE type IN ('security.join.refused', 'security.join.invalid')) AS details"
    )
    told = Counter((row["request"], row["tenant"]) for row in details if row["id"] not in injected)
    published = Counter(
        (bytes(row["request_sha256"]).hex(), row["tenant"]) for row in rows if row["published"]
    )
    findings.each(Kind.LOST, "published refusal without its event", published - told)
    findings.each(Kind.WRONG, "event of a refusal that is not published", told - published)


async def _check_sums(rows: Sequence[Row], tables: Tables, findings: Findings) -> int:
    """Published and summarised make up all rows of each bucket."""
    suppressed: Counter[Bucket] = Counter(
        (row["tenant"], row["attestor"], row["reason"]) for row in rows if not row["published"]
    )
    windows = await tables.rows(
        "SELECT convert_from(value, 'UTF8') AS body FROM journal WHERE type = 'security.join.refused.window' ORDER BY seq"
    )
    summarised: Counter[Bucket] = Counter()
    for row in windows:
        body = json.loads(row["body"])
        bucket = (body["tenant"], body["attestor"], body["reason"])
        summarised[bucket] += body["suppressed"]
        if body["recorded"] != body["published"] + body["suppressed"]:
            findings.wrong("summary that does not add up", body["id"])
    for bucket in suppressed.keys() | summarised.keys():
        want, have = suppressed[bucket], summarised[bucket]
        if have < want:
            findings.lost("suppressed refusals without a summary", f"{bucket}: {want - have}")
        elif have > want:
            findings.duplicated("refusals summarised twice", f"{bucket}: {have - want}")
    return summarised.total()


def _was_held(row: Row, stalls: Sequence[Stretch]) -> bool:
    """Tell whether a row was recorded when nothing can be said of its slot's claim any more."""
    at = row["recorded_at"].timestamp()
    return any(began <= at <= ended + _CLAIM_TO_ROW_S for began, ended in stalls)


def _check_bound(rows: Sequence[Row], bound: Bound, findings: Findings) -> None:
    """No sliding window has more details than the limit."""
    by_bucket: dict[Bucket, list[float]] = defaultdict(list)
    for row in rows:
        if row["published"]:
            bucket = (row["tenant"], row["attestor"], row["reason"])
            by_bucket[bucket].append(row["recorded_at"].timestamp())
    by_attestor: dict[tuple[str, str], list[float]] = defaultdict(list)
    reasons: Counter[tuple[str, str]] = Counter()
    for (tenant, attestor, reason), times in by_bucket.items():
        most = most_in_window(times, bound.window_s - _CLAIM_TO_ROW_S)
        if most > bound.limit:
            findings.wrong("more details than the bound", f"{tenant} {attestor}:{reason}: {most}")
        by_attestor[tenant, attestor] += times
        reasons[tenant, attestor] += 1
    for (tenant, attestor), times in by_attestor.items():
        most = most_in_window(sorted(times), bound.window_s - _CLAIM_TO_ROW_S)
        # The first of each reason are outside the common bucket.
        limit = bound.attestor_limit + bound.exempt * reasons[tenant, attestor]
        if most > limit:
            findings.wrong("more details than the attestor's bound", f"{tenant} {attestor}: {most}")


def most_in_window(times: Sequence[float], window_s: float) -> int:
    """Return the greatest number of these sorted times within any half-open window of this length."""
    most = begin = 0
    for end, time in enumerate(times):
        while time - times[begin] >= window_s:
            begin += 1
        most = max(most, end - begin + 1)
    return most
