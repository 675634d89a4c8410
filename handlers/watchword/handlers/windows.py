"""Summaries of refusals that were recorded and not published. Pure: rows and times are arguments.

A bucket (tenant, attestor, reason) is quiet until one of its refusals is held back. Then:

=========  =======================================================================================
`start`    at once, with what was recorded since the last look: the security team learns of it now
`running`  at the end of each period in which something was held back
`end`      at the end of the first period in which nothing was
=========  =======================================================================================

Each refusal that was held back is in exactly one summary: a summary counts what became visible
between two snapshots, and the next one begins where it ended.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from watchword.handlers.journal import Entry, entry, new_event_id, refusal_key
from watchword.schemas.events import RefusalWindow
from watchword.schemas.times import rfc3339
from watchword.schemas.topics import JOIN_REFUSED

Bucket = tuple[str, str, str]
"""Tenant, attestor, reason."""

MAX_ROWS = 200_000
"""A period ends early when all its buckets together have so many rows: what is distinct is counted over
all of them in one statement, which has to stay within seconds."""


@dataclass(frozen=True, slots=True)
class Limit:
    """How many details of a bucket are published in how many seconds, at the most; told in summaries."""

    details: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Seen:
    """What of a bucket became visible since the last look."""

    recorded: int
    suppressed: int


@dataclass(frozen=True, slots=True)
class Window:
    """A bucket that is held back: its period, what that counts from, and how much it has so far."""

    period_start: datetime
    from_snapshot: str
    recorded: int = 0


@dataclass(frozen=True, slots=True)
class Counts:
    """What a bucket recorded between two snapshots; exact."""

    recorded: int
    published: int
    distinct_csrs: int
    distinct_hardware_keys: int
    first_time: datetime | None
    last_time: datetime | None
    request_ids: tuple[str, ...] = ()

    @property
    def suppressed(self) -> int:
        """What was not published."""
        return self.recorded - self.published


@dataclass(frozen=True, slots=True)
class Due:
    """A summary to be counted from this snapshot on."""

    from_snapshot: str
    period_start: datetime | None
    """None: this is the start."""


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at the refusals leads to: summaries that are due, and windows that go on."""

    due: Mapping[Bucket, Due] = field(default_factory=dict[Bucket, Due])
    grown: Mapping[Bucket, int] = field(default_factory=dict[Bucket, int])


def look(
    windows: Mapping[Bucket, Window],
    seen: Mapping[Bucket, Seen],
    *,
    now: datetime,
    from_snapshot: str,
    period: timedelta,
) -> Look:
    """Decide which buckets get a summary; `from_snapshot` is where this look began to count."""
    due: dict[Bucket, Due] = {}
    more = {bucket: seen[bucket].recorded for bucket in windows if bucket in seen}
    is_full = sum(more.values()) + sum(w.recorded for w in windows.values()) >= MAX_ROWS
    for bucket, window in windows.items():
        if is_full or now - window.period_start >= period:
            due[bucket] = Due(window.from_snapshot, window.period_start)
    grown = {bucket: rows for bucket, rows in more.items() if bucket not in due}
    for bucket, found in seen.items():
        if bucket not in windows and found.suppressed:
            due[bucket] = Due(from_snapshot, None)
    return Look(due, grown)


def is_over(due: Due, counts: Counts) -> bool:
    """Tell whether this summary is the last one: a period went by and nothing was held back."""
    return due.period_start is not None and counts.suppressed == 0


def summary(
    bucket: Bucket, due: Due, counts: Counts, *, now: datetime, limit: Limit, source: str
) -> Entry:
    """Return the journal entry of one summary."""
    tenant, attestor, reason = bucket
    event_id = new_event_id()
    start = due.period_start or counts.first_time or now
    event = RefusalWindow(
        id=str(event_id),
        time=rfc3339(now),
        tenant=tenant,
        attestor=attestor,
        reason=reason,
        refusal=f"{attestor}:{reason}",
        period_start=rfc3339(min(start, now)),
        period_end=rfc3339(now),
        phase="start" if due.period_start is None else "end" if is_over(due, counts) else "running",
        recorded=counts.recorded,
        published=counts.published,
        suppressed=counts.suppressed,
        distinct_csrs=counts.distinct_csrs,
        distinct_claimed_hardware_keys=counts.distinct_hardware_keys,
        first_time=None if counts.first_time is None else rfc3339(counts.first_time),
        last_time=None if counts.last_time is None else rfc3339(counts.last_time),
        limit=limit.details,
        limit_seconds=math.ceil(limit.seconds),
        request_ids=counts.request_ids,
    )
    return entry(
        event,
        event_id=event_id,
        occurred_at=now,
        key=refusal_key(tenant, attestor, reason),
        source=source,
        subject=f"refusals/{attestor}:{reason}",
        topic=JOIN_REFUSED,
        event_class="refusal",
    )


def summaries(
    due: Mapping[Bucket, Due],
    counts: Mapping[Bucket, Counts],
    *,
    now: datetime,
    limit: Limit,
    source: str,
) -> Sequence[Entry]:
    """Return the entries of all summaries that are due."""
    return [
        summary(bucket, due[bucket], counts[bucket], now=now, limit=limit, source=source)
        for bucket in sorted(due)
    ]
