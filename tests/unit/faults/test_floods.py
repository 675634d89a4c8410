"""Floods are counted exactly, and a kind of junk that is answered as another shows."""

import json
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256

import pytest

from tests.faults.judge.findings import Findings, Kind
from tests.faults.judge.floods import check_counts, check_flood
from tests.faults.judge.ledger import INVALID, Asked, Flood, Ledger
from tests.faults.judge.topics import REFUSED, REQUESTS, Record, Taken
from tests.faults.load.malformed import ALWAYS, MALFORMATIONS, Bases
from tests.faults.load.wire import post

GOOD = b'{"kind":"join","role":"node","version":1}'

FLOOD = Flood(
    answers={"no JSON": {"undecodable": 3, "busy": 1}, "body": {"too-large": 2, "cut": 1}},
    expected={
        "no JSON": frozenset(("undecodable",)) | ALWAYS,
        "body": frozenset(("too-large", "cut")) | ALWAYS,
    },
    counted={"undecodable": 3, "too-large": 2, "too-many-waiters": 9},
    without_a_time=0,
    grown_bytes={"gateway-0": 5},
    most_bytes=10,
)


def found_in(flood: Flood) -> list[str]:
    findings = Findings()
    check_flood(flood, findings)
    return [check for _, check in findings.checks]


def test_a_flood_that_was_answered_and_counted_is_no_finding() -> None:
    """A judge that finds something where nothing is, is switched off."""
    assert found_in(FLOOD) == []


def test_an_answer_that_was_cut_off_may_have_been_counted() -> None:
    """Who was cut off has not read what the gateway had said, and counted."""
    assert found_in(replace(FLOOD, counted={"undecodable": 3, "too-large": 3})) == []


@pytest.mark.parametrize(
    ("change", "check"),
    [
        ({"counted": {"undecodable": 2, "too-large": 2}}, "junk that gateways count otherwise"),
        ({"counted": {"undecodable": 4, "too-large": 2}}, "junk that gateways count otherwise"),
        ({"counted": {"undecodable": 3, "too-large": 4}}, "junk that gateways count otherwise"),
        ({"expected": {"body": FLOOD.expected["body"]}}, "answer to junk"),
        ({"without_a_time": 1}, "sent away without a time to come again"),
        ({"grown_bytes": {"gateway-0": 11}}, "memory of a gateway in a flood"),
    ],
)
def test_what_a_gateway_does_otherwise_is_found(change: Mapping[str, object], check: str) -> None:
    """Each promise about a flood is looked at."""
    assert found_in(replace(FLOOD, **change)) == [check]  # type: ignore[arg-type] # a change of each kind


def records(*values: bytes, topic: str = REQUESTS) -> list[Record]:
    return [Record(topic, 0, offset, 0, None, value) for offset, value in enumerate(values)]


def told(**body: object) -> bytes:
    return json.dumps({"attestor": "join", "reason": "undecodable", **body}).encode()


def asked(value: bytes) -> Asked:
    return Asked(
        sha256(value).digest(), "flood", frozenset((INVALID,)), frozenset(("join:undecodable",))
    )


DETAIL = told(id="e1", type="security.join.invalid")
SUMMARY = told(id="e2", type="security.join.refused.window", suppressed=2)


@pytest.mark.parametrize(
    ("events", "kinds"),
    [
        ((DETAIL, DETAIL, SUMMARY), []),
        ((DETAIL,), [Kind.LOST]),
        ((SUMMARY,), [Kind.LOST]),
        ((DETAIL, told(id="e3", type="security.join.invalid"), SUMMARY), [Kind.DUPLICATED]),
    ],
)
def test_details_and_summaries_make_up_what_was_sent(
    events: tuple[bytes, ...], kinds: list[Kind]
) -> None:
    """Junk that is told of once too often is as wrong as junk of which nobody hears; a copy of an event is neither."""
    values = (b"one", b"two", b"three")
    ledger, findings = Ledger(), Findings()
    for value in values:
        ledger.add(asked(value))
    sent = [Taken.of(record) for record in records(*values, b"one")]
    count = check_counts(ledger, sent, records(*events, topic=REFUSED), findings)
    assert count == 3
    assert [kind for kind, _ in findings.checks] == kinds


def test_no_malformation_is_a_good_request() -> None:
    """A flood whose junk is none shows nothing."""
    bases = Bases((GOOD,), dict.fromkeys(("csr-malformed", "csr-signature", "weak-key"), b"{}"))
    for kind, malformation in MALFORMATIONS.items():
        assert malformation.make(GOOD, bases) != post(GOOD), kind
