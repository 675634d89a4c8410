"""What could not be read comes out of the dead-letter topic, byte for byte."""

from collections import defaultdict
from collections.abc import Sequence
from hashlib import sha256

from tests.faults.judge.findings import Findings
from tests.faults.judge.ledger import Ledger
from tests.faults.judge.topics import REQUESTS, Record


def check_letters(
    ledger: Ledger, requests: Sequence[Record], letters: Sequence[Record], findings: Findings
) -> int:
    """Compare dead letters with what was sent; return how many different ones there are."""
    due: dict[bytes, bytes] = {
        asked.digest: asked.dead_letter
        for asked in ledger.asked.values()
        if asked.dead_letter is not None and asked.deliveries
    }
    places: dict[tuple[int, int], tuple[bytes, bytes | None]] = {
        (record.partition, record.offset): (record.value or b"", record.key) for record in requests
    }
    places |= {(p.partition, p.offset): (p.value, p.key) for p in ledger.poisons}
    seen: dict[bytes, int] = defaultdict(int)
    for letter in letters:
        headers = {name: value or b"" for name, value in letter.headers}
        value = letter.value or b""
        seen[sha256(value).digest()] += 1
        if not headers.get("watchword-reason"):
            findings.wrong("dead letter without a reason", letter.place)
        where = (
            int(headers.get("watchword-partition", b"-1")),
            int(headers.get("watchword-offset", b"-1")),
        )
        if headers.get("watchword-topic") != REQUESTS.encode() or where not in places:
            findings.wrong("dead letter of a record that does not exist", letter.place)
        elif places[where] != (value, letter.key):
            findings.wrong("dead letter with other bytes than its record", letter.place)
    for digest in due.keys() - seen.keys():
        findings.lost("undecodable bytes without a dead letter", digest.hex())
    for poison in ledger.poisons:
        if sha256(poison.value).digest() not in seen:
            place = f"{poison.partition}/{poison.offset}"
            findings.lost("poison record without a dead letter", place)
    known = due.keys() | {sha256(poison.value).digest() for poison in ledger.poisons}
    for digest in seen.keys() - known:
        findings.wrong("dead letter of bytes that can be read", digest.hex())
    return len(seen)
