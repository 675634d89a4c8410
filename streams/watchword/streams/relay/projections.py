"""What is published beside an event, made of the same row: refusals as OCSF, and for tenants with a topic of their own.

A row that has projections is published when all of its records are acknowledged. They go first: a topic that is
missing, or a record that is rejected, then holds the row back, and does not have it sent again and again. All have
the row's key: order is the same on every topic. The OCSF record is another event than the native one and has an id
of its own, made of that one's, so that a consumer of both drops neither and a resend has the same.
"""

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from uuid import NAMESPACE_URL, UUID, uuid5

import structlog

from watchword.handlers.store.relay import Row
from watchword.schemas.ocsf import to_ocsf
from watchword.schemas.topics import JOIN_REFUSED, JOIN_REFUSED_OCSF, tenant_refusals_topic
from watchword.streams.relay.publisher import Outcome

_log = structlog.get_logger(__name__)

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

_OCSF_IDS = uuid5(NAMESPACE_URL, "https://schema.ocsf.io/1.5.0/classes/entity_management")


class Projected:
    """Rows with their projections before them, and the outcome of all as the rows' own."""

    def __init__(self, rows: Sequence[Row], *, tenant_topics: Collection[str] = ()) -> None:
        """Put the projections before each row; `tenant_topics` are the tenants with a topic of their own."""
        self.rows: list[Row] = []
        self._positions: list[int] = []
        for position, row in enumerate(rows):
            records = [row]
            if row.topic == JOIN_REFUSED:
                records = [*_projections(row, tenant_topics), row]
            self.rows += records
            self._positions += [position] * len(records)

    def folded(self, outcome: Outcome) -> Outcome:
        """Return what became of the rows: acknowledged only with their projections."""
        missing = {
            position
            for at, position in enumerate(self._positions)
            if at not in outcome.acknowledged
        }
        return replace(
            outcome,
            acknowledged=set(self._positions) - missing,
            rejected={self._positions[at]: why for at, why in outcome.rejected.items()},
        )


def ocsf_id(native: UUID) -> str:
    """Return the id of the OCSF event of a native one."""
    return str(uuid5(_OCSF_IDS, str(native)))


def _projections(row: Row, tenant_topics: Collection[str]) -> Iterator[Row]:
    """Yield what goes out with a row; nothing for what is no refusal of this release, which must stop no partition."""
    try:
        event = json.loads(row.value)
        tenant = event["tenant"]
        projected = _ocsf(row, to_ocsf(event))
    except (KeyError, ValueError, TypeError) as error:
        _log.error("no OCSF for this event", event_id=str(row.event_id), error=type(error).__name__)
        return
    yield projected
    if tenant in tenant_topics:
        yield replace(row, topic=tenant_refusals_topic(tenant))


def _ocsf(row: Row, event: dict[str, object]) -> Row:
    headers: dict[str, str] = json.loads(row.headers)
    headers["ce_id"] = ocsf_id(row.event_id)
    if "ce_type" in headers:
        headers["ce_type"] += ".ocsf"
    return replace(
        row,
        topic=JOIN_REFUSED_OCSF,
        headers=_encode(headers),
        value=_encode(event).encode(),
    )
