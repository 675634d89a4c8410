"""The judge has every request explained, and is told neither too little nor what it cannot see for itself."""

from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import pytest

from tests.faults.judge.explained import Explained, check_explained, stretches
from tests.faults.judge.findings import Findings, Kind
from tests.faults.judge.topics import Taken

_NAMES = {1: "joined", 2: "refused", 4: "invalid_input"}


def record(number: int, *, at: int | None = None) -> Taken:
    """Return a record; the same number is the same request."""
    when = 1_700_000_000_000 + (number if at is None else at)
    return Taken(0, number, when, b"k", sha256(f"request {number}".encode()).digest())


def row(number: int, outcome: int, reason: str | None = None) -> dict[str, Any]:
    """Return what the inbox has of a request."""
    digest = sha256(f"request {number}".encode()).digest()
    return {"digest": digest, "outcome": outcome, "reason": reason, "node_id": None}


RECORDS = [record(n) for n in range(2000)]
INBOX = [row(n, 1) if n % 2 else row(n, 2, "join-token:used-up") for n in range(1990)]


class Service:
    """Explains as a service that is right, but for what a test changes."""

    def __init__(self, **changes: Any) -> None:  # noqa: ANN401 - of an answer's members
        """Take changes to the first answer."""
        self.asked: list[tuple[str, str]] = []
        self._changes = changes

    async def explain(self, asked: Sequence[tuple[str, str]]) -> list[dict[str, Any] | None]:
        """See `judge.explained.Explain`."""
        self.asked += asked
        recorded = {one["digest"]: one for one in INBOX}
        answers: list[dict[str, Any] | None] = []
        for stretch in stretches(RECORDS):
            rows = [recorded[digest] for digest in stretch.digests if digest in recorded]
            names = Counter(f"{_NAMES[r['outcome']]} {r['reason'] or ''}".rstrip() for r in rows)
            answers.append(
                {
                    "looked_at": len(stretch.digests),
                    "has_more": False,
                    "changed": [],
                    "recorded": dict(names),
                }
            )
        answers[0] = {**(answers[0] or {}), **self._changes}
        return answers


def test_stretches_have_each_request_once_and_no_gap_between_them() -> None:
    """What lies between two stretches would never be explained."""
    found = stretches([*RECORDS, record(7, at=7)])
    assert [len(one.digests) for one in found] == [400] * 5
    assert [one.since_ms for one in found[:-1]] == [one.until_ms for one in found[1:]]
    assert found[0].until_ms == RECORDS[-1].timestamp_ms + 1
    assert found[-1].since_ms == RECORDS[0].timestamp_ms
    assert found[0].bounds[1] == "2023-11-14T22:13:22.000Z"


async def test_where_all_is_as_recorded_nothing_is_found() -> None:
    """And everything was asked for, the latest first."""
    service, findings = Service(), Findings()
    done = await check_explained(RECORDS, INBOX, service.explain, findings)
    assert findings.is_clean, findings.lines()
    assert done == Explained(2000, 2000)
    assert service.asked == sorted(service.asked, reverse=True)


CHANGED = {
    "attestor": "join-token",
    "request_sha256": "ab" * 32,
    "place": "join.requests:0:7",
    "in_force": "joined",
    "recorded": "refused join-token:used-up",
    "check": None,
}


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"changed": [CHANGED]}, Kind.WRONG),
        ({"looked_at": 399}, Kind.LOST),
        ({"has_more": True}, Kind.LOST),
        # It says that all is as recorded, and has read something else than we have.
        ({"recorded": {"joined": 400}}, Kind.WRONG),
        ({"error": "the worker failed over it: KeyError"}, Kind.LOST),
    ],
)
async def test_what_is_explained_otherwise_or_not_at_all_is_found(
    changes: dict[str, Any], kind: Kind
) -> None:
    """A service that explains to its own satisfaction is no evidence."""
    findings = Findings()
    await check_explained(RECORDS, INBOX, Service(**changes).explain, findings)
    assert findings.counts == {kind: 1}


async def test_what_there_was_no_time_for_is_counted_and_no_finding() -> None:
    """Nor what has too much behind it; but of nothing at all nothing can be said."""

    async def some(asked: Sequence[tuple[str, str]]) -> list[dict[str, Any] | None]:
        first, *_ = await Service().explain(asked)
        return [
            first,
            None,
            {"error": "more than 50000 events have happened since: judge it with --now"},
            {"error": "it takes longer than 120 s: ask for less"},
            None,
        ]

    async def none(asked: Sequence[tuple[str, str]]) -> list[dict[str, Any] | None]:
        return [None for _ in asked]

    findings = Findings()
    assert await check_explained(RECORDS, INBOX, some, findings) == Explained(400, 2000)
    assert findings.is_clean
    assert await check_explained(RECORDS, INBOX, none, findings) == Explained(0, 2000)
    assert findings.counts == {Kind.LOST: 1}
    assert await check_explained(RECORDS, INBOX, None, Findings()) == Explained(0, 2000)
