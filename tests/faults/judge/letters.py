"""What could not be read comes out of the dead-letter topic, byte for byte."""

from collections import defaultdict
from collections.abc import Sequence
from hashlib import sha256

from tests.faults.judge.findings import Findings
from tests.faults.judge.ledger import Ledger
from tests.faults.judge.topics import REQUESTS, Record, Taken


def check_letters(
    ledger: Ledger, requests: Sequence[Taken], letters: Sequence[Record], findings: Findings
) -> int:
    """Compare dead letters with what was sent; return how many different ones there are."""
    due: dict[bytes, bytes] = {
        asked.digest: asked.dead_letter
        for asked in ledger.asked.values()
        if asked.dead_letter is not None and asked.deliveries
    }
    told_of = {_place(letter) for letter in letters}
    places: dict[tuple[int, int], tuple[bytes, bytes | None]] = {
        place: (record.digest, record.key)
        for record in requests
        if (place := (record.partition, record.offset)) in told_of
    }
    poisons = {(p.partition, p.offset): (sha256(p.value).digest(), p.key) for p in ledger.poisons}
    places |= poisons
    seen: dict[bytes, int] = defaultdict(int)
    for letter in letters:
        headers = {name: value or b"" for name, value in letter.headers}
        digest = sha256(letter.value or b"").digest()
        seen[digest] += 1
        if not headers.get("watchword-reason"):
            findings.wrong("dead letter without a reason", letter.place)
        at = _place(letter)
        if headers.get("watchword-topic") != REQUESTS.encode() or at not in places:
            findings.wrong("dead letter of a record that does not exist", letter.place)
        elif places[at] != (digest, letter.key):
            findings.wrong("dead letter with other bytes than its record", letter.place)
    for digest in due.keys() - seen.keys():
        findings.lost("undecodable bytes without a dead letter", digest.hex())
    for (partition, offset), (digest, _) in poisons.items():
        if digest not in seen:
            findings.lost("poison record without a dead letter", f"{partition}/{offset}")
    known = due.keys() | {digest for digest, _ in poisons.values()}
    for digest in seen.keys() - known:
        findings.wrong("dead letter of bytes that can be read", digest.hex())
    return len(seen)


def _place(letter: Record) -> tuple[int, int]:
    """Return partition and offset of the record that a dead letter says it was."""
    headers = {name: value or b"-1" for name, value in letter.headers}
    partition = headers.get("watchword-partition", b"-1")
    return int(partition), int(headers.get("watchword-offset", b"-1"))
