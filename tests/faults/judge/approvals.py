"""Each join that waited: one row, one end, and no admission that an operator has not agreed to."""

from collections import Counter

from tests.faults.judge.answers import Outcomes
from tests.faults.judge.findings import Findings
from tests.faults.judge.ledger import DEFERRED, JOINED, REFUSED, Ledger
from tests.faults.judge.tables import Tables

# `watchword.now()` goes on while the judge reads the tables as they were when it began.
_ROWS = """
SELECT r.csr_sha256, r.state, r.attestor, r.expires_at < transaction_timestamp() - interval '90 s' AS is_late,
    (SELECT count(*) FROM node_certs c WHERE c.csr_sha256 = r.csr_sha256) AS certificates,
    coalesce(j.told, 0) AS waiting
FROM join_requests r LEFT JOIN (
    SELECT convert_from(key, 'UTF8') AS id, count(*) AS told FROM journal WHERE type = 'join.waiting' GROUP BY 1
) j ON j.id = r.id::text
"""

_UNAPPROVED = """
SELECT c.csr_sha256 FROM node_certs c JOIN nodes n ON n.id = c.node_id
WHERE n.attestor IN ('image', 'discovery') AND NOT EXISTS (SELECT FROM join_requests r
    WHERE r.csr_sha256 = c.csr_sha256 AND r.attestor = n.attestor AND r.state = 'consumed')
"""

_ALIVE = frozenset(("pending", "approved"))


async def check_approvals(
    ledger: Ledger, outcomes: Outcomes, tables: Tables, findings: Findings
) -> Counter[str]:
    """Compare waiting joins with answers, admissions and an operator's words; return how many are in each state."""
    rows = await tables.rows(_ROWS)
    by_csr = Counter(bytes(row["csr_sha256"]) for row in rows)
    for csr, count in by_csr.items():
        if count > 1:
            findings.duplicated("CSR that waits twice", f"{csr.hex()}: {count}")
    for row in rows:
        name = f"{row['attestor']} {bytes(row['csr_sha256']).hex()[:16]}: {row['state']}"
        if (row["certificates"] == 1) != (row["state"] == "consumed"):
            findings.wrong("approval and admission do not agree", name)
        if not row["waiting"]:
            findings.lost("waiting join without its event", name)
        if row["state"] in _ALIVE and row["is_late"]:
            findings.wrong("waiting join that does not expire", name)
    for row in await tables.rows(_UNAPPROVED):
        findings.wrong("admission that nobody approved", bytes(row["csr_sha256"]).hex())
    told: dict[bytes, set[str]] = {}
    for digest, answers in outcomes.answers.items():
        asked = ledger.asked[digest]
        if asked.deferral == "approval" and asked.csr_sha256 is not None:
            told.setdefault(asked.csr_sha256, set()).update(answer.outcome for answer in answers)
    for csr, said in told.items():
        if DEFERRED in said and csr not in by_csr:
            findings.lost("deferral without a waiting join", csr.hex())
    for csr, word in ledger.decided.items():
        if (JOINED if word == "approved" else REFUSED) not in told.get(csr, set()):
            findings.lost("machine that never heard what an operator had decided", csr.hex())
    return Counter(str(row["state"]) for row in rows)
