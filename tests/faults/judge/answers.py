"""Every acknowledged request has one final outcome, or an answer that invites another try."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from tests.faults.judge.documents import Answer, Unreadable, read_answer
from tests.faults.judge.findings import Findings
from tests.faults.judge.ledger import (
    COMMANDS,
    DEFERRED,
    FINAL,
    INVALID,
    JOINED,
    REFUSED,
    UNAVAILABLE,
    UNSUPPORTED,
    Asked,
    Ledger,
)
from tests.faults.judge.tables import Row
from tests.faults.judge.topics import Record, Taken

_CODES = {1: JOINED, 2: REFUSED, 3: DEFERRED, 4: INVALID, 5: UNSUPPORTED, 6: COMMANDS}
_REFUSED_CONTENT = {"code": "ACCESS_DENIED", "message": "Join refused"}


@dataclass(slots=True)
class Outcomes:
    """What became of each request that Kafka has."""

    answers: dict[bytes, list[Answer]] = field(default_factory=dict[bytes, list[Answer]])
    final: dict[bytes, Answer] = field(default_factory=dict[bytes, Answer])


class Reader:
    """Reads signed answers, opens those that are sealed, and holds each against its request."""

    def __init__(self, ledger: Ledger, signing: bytes, findings: Findings) -> None:
        """Take what was asked, and the 32 raw bytes of the pinned key."""
        self._ledger = ledger
        self._signing = signing
        self._findings = findings
        self._reply_keys = {
            a.digest: a.reply_private for a in ledger.asked.values() if a.reply_private is not None
        }
        self.answers: dict[bytes, list[Answer]] = {}
        """What was read until now, by the digest of the request."""

    def read(self, responses: Iterable[Record]) -> None:
        """Read some more."""
        findings = self._findings
        for record in responses:
            try:
                answer = read_answer(record.value or b"", self._signing, self._reply_keys)
            except (Unreadable, KeyError, ValueError) as error:
                findings.wrong("answer that does not verify", f"{record.place}: {error!r}")
                continue
            asked = self._ledger.asked.get(answer.request_sha256)
            if asked is None:
                findings.wrong("answer to a request that nobody made", record.place)
                continue
            self.answers.setdefault(asked.digest, []).append(answer)
            if record.key != (asked.csr_sha256 or asked.digest):
                findings.wrong("answer under another key", f"{record.place} {asked.kind}")
            if answer.was_sealed != (asked.reply_private is not None):
                findings.wrong(
                    "answer in clear that was to be sealed, or sealed unasked", record.place
                )


def check_answers(
    ledger: Ledger,
    requests: Iterable[Taken],
    answers: Mapping[bytes, list[Answer]],
    inbox: Iterable[Row],
    findings: Findings,
) -> Outcomes:
    """Compare what was asked, what Kafka has, what was answered and what is recorded.

    `requests` are of the whole topic, `answers` what a `Reader` found in the whole topic of answers,
    `inbox` is the whole table.
    """
    in_log = _in_log(ledger, requests, findings)
    recorded = {bytes(row["digest"]): row for row in inbox}
    found = Outcomes(dict(answers))
    for digest in sorted(in_log):
        asked = ledger.asked[digest]
        _check_one(asked, answers.get(digest, []), recorded.get(digest), found, findings)
    for digest in recorded.keys() - in_log:
        if not _is_quarantine(recorded[digest], ledger):
            findings.wrong("inbox row of a request that is not in the topic", digest.hex())
    _check_one_size(found, findings)
    _check_challenges(found, findings)
    return found


def _in_log(ledger: Ledger, requests: Iterable[Taken], findings: Findings) -> set[bytes]:
    found: set[bytes] = set()
    for record in requests:
        if record.digest in ledger.asked:
            found.add(record.digest)
        else:
            findings.wrong("record in join.requests that nobody sent", record.place)
    for asked in ledger.asked.values():
        if asked.deliveries and asked.digest not in found:
            findings.lost("acknowledged request that Kafka does not have", asked.digest.hex())
    return found


def _check_one(
    asked: Asked, answers: Sequence[Answer], row: Row | None, found: Outcomes, findings: Findings
) -> None:
    name = f"{asked.kind} {asked.digest.hex()[:16]}"
    if not answers:
        findings.lost("request without an answer", name)
    for answer in answers:
        payload = answer.payload
        if answer.outcome not in asked.outcomes | {UNAVAILABLE}:
            findings.wrong("outcome that cannot be", f"{name}: {answer.outcome}")
        if payload["requestId"] != asked.request_id or payload["csrSha256"] != (
            None if asked.csr_sha256 is None else asked.csr_sha256.hex()
        ):
            findings.wrong("answer about another request or CSR", name)
        if answer.outcome == DEFERRED and payload[DEFERRED]["type"] != asked.deferral:
            findings.wrong("deferral of another kind", f"{name}: {payload[DEFERRED]}")
        if answer.outcome == REFUSED and payload["refused"] != _REFUSED_CONTENT:
            findings.wrong("refusal that says more", f"{name}: {payload['refused']}")
        if answer.outcome == UNAVAILABLE and UNAVAILABLE not in asked.outcomes:
            # It invites another try, so nothing is lost; but nothing here gave a reason for it.
            findings.wrong("UNAVAILABLE without a bug of an attestor's", name)
    final = [answer for answer in answers if answer.outcome in FINAL]
    kinds = {(a.outcome, a.node, a.leaf) for a in final}
    if len(kinds) > 1:
        findings.duplicated("request with two final outcomes", f"{name}: {[k[:2] for k in kinds]}")
    if final:
        found.final[asked.digest] = final[0]
    _compare_with_inbox(asked, final[0] if final else None, row, name, findings)


def _compare_with_inbox(
    asked: Asked, final: Answer | None, row: Row | None, name: str, findings: Findings
) -> None:
    if row is None:
        # Where nothing waited and nothing was said, nothing was written.
        if final is not None and final.outcome != COMMANDS:
            findings.lost("final answer without an inbox row", name)
        return
    outcome = _CODES[row["outcome"]]
    if outcome == DEFERRED:
        if asked.deferral != "approval":
            findings.wrong("deferral that is recorded", f"{name}: a challenge leaves no row")
        if final is not None:
            findings.lost("final answer of which the inbox knows a deferral", name)
        return
    if outcome in FINAL and final is None:
        findings.lost("recorded outcome that was never answered", f"{name}: {outcome}")
        return
    said = (final.outcome, final.node) if final is not None else None
    if final is not None and final.outcome == COMMANDS:
        said = (COMMANDS, asked.node)
    if said is not None and (outcome, row["node_id"] and str(row["node_id"])) != said:
        findings.wrong("answer is not the recorded outcome", f"{name}: {said}, {outcome}")
    if outcome not in (JOINED, COMMANDS) and row["reason"] not in asked.reasons:
        findings.wrong("recorded reason", f"{name}: {row['reason']} is not in {set(asked.reasons)}")


def _is_quarantine(row: Mapping[str, Any], ledger: Ledger) -> bool:
    """Tell whether the row is of a record that cannot be parsed: it goes by its place."""
    places = (f"join.requests/{p.partition}/{p.offset}".encode() for p in ledger.poisons)
    return any(blake2b(place, digest_size=32).digest() == row["digest"] for place in places)


def _check_challenges(found: Outcomes, findings: Findings) -> None:
    """Every challenge is fresh, also one that answers the same bytes again."""
    seen: set[str] = set()
    for answers in found.answers.values():
        # One answer may stand there twice, word for word: after an error it is sent again.
        for told in {a.said: a.payload for a in answers if a.outcome == DEFERRED}.values():
            if told[DEFERRED]["type"] != "challenge":
                continue
            for name in ("challenge", "state"):
                if told[DEFERRED][name] in seen:
                    findings.wrong("challenge that is not fresh", f"{name} {told['requestId']}")
                seen.add(told[DEFERRED][name])


def _check_one_size(found: Outcomes, findings: Findings) -> None:
    """All refusals have the same form: sealed or clear, each kind has one length."""
    for was_sealed in (False, True):
        sizes = {
            answer.size
            for answers in found.answers.values()
            for answer in answers
            if answer.outcome == REFUSED and answer.was_sealed == was_sealed
        }
        if len(sizes) > 1:
            findings.wrong("refusals of different lengths", sorted(sizes))


def challenges_in(found: Outcomes) -> int:
    """Return how many challenges were handed out."""
    return sum(
        answer.outcome == DEFERRED and answer.payload[DEFERRED]["type"] == "challenge"
        for answers in found.answers.values()
        for answer in answers
    )
