"""What `explain` says of every request of the round is what is recorded of it.

The service judges each request again at its own time, from the journal and the tables; what it comes to is
compared by the service with what it takes for recorded, and that, counted by outcome and reason, with the
inbox as it is read here.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tests.faults.judge.findings import Findings
from tests.faults.judge.tables import Row
from tests.faults.judge.topics import Taken

_AT_ONCE = 400
"""Requests that one explanation is asked for."""

_NAMES = {1: "joined", 2: "refused", 3: "deferred-approval", 4: "invalid_input", 5: "unsupported", 6: "commands"}  # fmt: skip
_NOT_COME_TO = ("events have happened since", "it takes longer than")
"""Said of requests with more behind them than the service looks back, or of too many: then they are not explained."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A time, and the distinct requests that Kafka took in it."""

    since_ms: int
    until_ms: int
    digests: frozenset[bytes] = field(repr=False)

    @property
    def bounds(self) -> tuple[str, str]:
        """Both ends, RFC 3339."""
        return _rfc3339(self.since_ms), _rfc3339(self.until_ms)


Explain = Callable[[Sequence[tuple[str, str]]], Awaitable[Sequence[dict[str, Any] | None]]]
"""Has stretches of time explained, in this order for as long as there is time; None of what was not come to.
What failed has a member `error`."""


@dataclass(frozen=True, slots=True)
class Explained:
    """How many requests were explained, of how many."""

    done: int
    of: int


async def check_explained(
    requests: Iterable[Taken], inbox: Sequence[Row], explain: Explain | None, findings: Findings
) -> Explained:
    """Have every request explained, the latest first, and note each that comes to something else.

    `requests` is the whole topic and `inbox` the whole table; without `explain` nothing is asked.
    """
    found = stretches(requests)
    recorded = {bytes(row["digest"]): row for row in inbox}
    total = len({digest for one in found for digest in one.digests})
    if explain is None or not found:
        return Explained(0, total)
    done: set[bytes] = set()
    answers = await explain([one.bounds for one in found])
    for stretch, answer in zip(found, answers, strict=True):
        if answer is None:
            continue
        if "error" in answer:
            if not any(said in answer["error"] for said in _NOT_COME_TO):
                findings.lost("explanation", f"{stretch.bounds}: {answer['error']}")
            continue
        _check_stretch(stretch, answer, recorded, findings)
        done |= stretch.digests
    if not done:
        findings.lost("explanation of any request", f"{len(found)} stretches of time")
    return Explained(len(done), total)


def stretches(requests: Iterable[Taken]) -> list[Stretch]:
    """Return stretches of time with so many requests each, the latest first."""
    times: dict[int, list[bytes]] = {}
    for record in requests:
        times.setdefault(record.timestamp_ms, []).append(record.digest)
    found: list[Stretch] = []
    until, digests = 0, set[bytes]()
    for now in sorted(times, reverse=True):
        until = until or now + 1
        digests.update(times[now])
        if len(digests) >= _AT_ONCE:
            found.append(Stretch(now, until, frozenset(digests)))
            until, digests = now, set()
    if digests:
        found.append(Stretch(min(times), until, frozenset(digests)))
    return found


def _check_stretch(
    stretch: Stretch, answer: dict[str, Any], recorded: dict[bytes, Row], findings: Findings
) -> None:
    for one in answer["changed"]:
        findings.wrong(
            "explained as something else than is recorded",
            f"{one['attestor']} {one['request_sha256'][:16]} at {one['place']}: {one['in_force']},"
            f" and not {one['recorded']}; check {one['check']}",
        )
    if answer["looked_at"] != len(stretch.digests) or answer["has_more"]:
        findings.lost(
            "request that was not explained",
            f"{stretch.bounds}: {answer['looked_at']} of {len(stretch.digests)}",
        )
    expected = Counter(_said(recorded[one]) for one in stretch.digests if one in recorded)
    if answer["recorded"] != dict(expected):
        told = Counter(answer["recorded"])
        findings.wrong(
            "recorded outcomes as explain has them",
            f"{stretch.bounds}: {told - expected} too many, {expected - told} missing",
        )


def _said(row: Row) -> str:
    name = _NAMES[row["outcome"]]
    return f"{name} {row['reason']}" if row["reason"] else name


def _rfc3339(milliseconds: int) -> str:
    whole = datetime.fromtimestamp(milliseconds // 1000, UTC)
    return f"{whole:%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03}Z"
