"""Floods: gateways have turned down what is junk and counted it, and what came through them is told of exactly."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tests.faults.judge.findings import Findings
from tests.faults.judge.ledger import INVALID, UNSUPPORTED, Flood, Ledger
from tests.faults.judge.tables import Tables
from tests.faults.judge.topics import Record, Taken

_CUT = "cut"
_AT_ANY_TIME = frozenset(("busy", "unavailable", "too-many-requests", "too-many-waiters", "202"))
"""What machines beside the flood are answered too, so that it cannot be counted whose it is."""
_INVALID_EVENTS = "security.join.invalid"
_SUMMARY = "security.join.refused.window"


@dataclass(frozen=True, slots=True)
class Counted:
    """What the floods of a round add up to."""

    at_gateways: int
    counted: int
    """Junk that reached workers: in events of its own, or in a summary."""
    booted: int


async def check_floods(
    ledger: Ledger,
    requests: Sequence[Taken],
    refused: Sequence[Record],
    tables: Tables,
    findings: Findings,
) -> Counted:
    """Compare what was sent with what gateways counted, and with what events say."""
    for flood in ledger.floods:
        check_flood(flood, findings)
    counted = check_counts(ledger, requests, refused, findings)
    await _check_booted(ledger, tables, findings)
    at_gateways = sum(sum(found.values()) for f in ledger.floods for found in f.answers.values())
    return Counted(at_gateways, counted, len(ledger.booted))


def check_flood(flood: Flood, findings: Findings) -> None:
    """Each piece of junk was answered as its kind is, and is counted by a gateway, once."""
    answered: Counter[str] = Counter()
    cut: Counter[str] = Counter()
    for kind, found in flood.answers.items():
        for name, count in found.items():
            answered[name] += count
            if name not in flood.expected.get(kind, _AT_ANY_TIME):
                findings.wrong("answer to junk", f"{kind}: {name}, {count} times")
        for name in flood.expected.get(kind, frozenset()) - {_CUT}:
            # The gateway may have answered, and nobody have read it.
            cut[name] += found.get(_CUT, 0)
    for name in (answered.keys() | flood.counted.keys()) - _AT_ANY_TIME - {_CUT}:
        have, counted = answered[name], flood.counted.get(name, 0)
        if not have <= counted <= have + cut[name]:
            findings.wrong("junk that gateways count otherwise", f"{name}: {counted} of {have}")
    if flood.without_a_time:
        findings.wrong("sent away without a time to come again", flood.without_a_time)
    for gateway, grown in flood.grown_bytes.items():
        if grown > flood.most_bytes:
            findings.wrong("memory of a gateway in a flood", f"{gateway}: {grown >> 20} MiB more")


def check_counts(
    ledger: Ledger, requests: Sequence[Taken], refused: Sequence[Record], findings: Findings
) -> int:
    """Events and summaries of each reason make up exactly what was sent for it; return how much that is.

    This looks past tables: at the topic of requests, and at what a SIEM reads.
    """
    sent: Counter[str] = Counter()
    for digest in {record.digest for record in requests}:
        asked = ledger.asked.get(digest)
        if asked is not None and asked.outcomes <= {INVALID, UNSUPPORTED}:
            [reason] = asked.reasons
            sent[reason] += 1
    told: Counter[str] = Counter()
    bodies = {
        str(body["id"]): body for record in refused for body in (json.loads(record.value or b"{}"),)
    }
    for body in bodies.values():
        reason = f"{body.get('attestor')}:{body.get('reason')}"
        if body["type"] == _INVALID_EVENTS:
            told[reason] += 1
        elif body["type"] == _SUMMARY:
            told[reason] += body["suppressed"]
    for reason, count in sent.items():
        if told[reason] < count:
            findings.lost("junk of which no event tells", f"{reason}: {count - told[reason]}")
        elif told[reason] > count:
            findings.duplicated("junk told of twice", f"{reason}: {told[reason] - count}")
    return sent.total()


async def _check_booted(ledger: Ledger, tables: Tables, findings: Findings) -> None:
    """Each machine of a boot storm is a node of its own."""
    rows = await tables.rows("SELECT csr_sha256, node_id FROM node_certs")
    nodes = {
        csr: row["node_id"] for row in rows if (csr := bytes(row["csr_sha256"])) in ledger.booted
    }
    for csr in ledger.booted - nodes.keys():
        findings.lost("machine of a boot storm that is no node", csr.hex())
    for node, count in Counter(nodes.values()).items():
        if count > 1:
            findings.duplicated("node of several machines of a boot storm", f"{node}: {count}")
