"""What a verifier wrote with SQL of its own stands or falls with the join."""

from collections import Counter

from tests.faults.judge.answers import Outcomes
from tests.faults.judge.findings import Findings, Kind
from tests.faults.judge.ledger import JOINED, Ledger
from tests.faults.judge.tables import Tables

KIND = "own-sql"


async def check_notes(
    ledger: Ledger, outcomes: Outcomes, tables: Tables, findings: Findings
) -> int:
    """Compare the notes with who has joined by that attestor; return how many notes there are."""
    rows = await tables.rows("SELECT csr FROM public.notes")
    notes = Counter(bytes(row["csr"]) for row in rows)
    joined = {
        asked.csr_sha256
        for digest, answer in outcomes.final.items()
        if (asked := ledger.asked[digest]).kind == KIND and answer.outcome == JOINED
    }
    findings.each(
        Kind.LOST,
        "admission without what its verifier wrote",
        (csr.hex() for csr in joined if csr is not None and csr not in notes),
    )
    findings.each(
        Kind.WRONG,
        "what a verifier wrote outlived its refusal",
        (csr.hex() for csr in notes if csr not in joined),
    )
    findings.each(
        Kind.DUPLICATED,
        "verifier's writes kept twice",
        (csr.hex() for csr, count in notes.items() if count > 1),
    )
    return notes.total()
