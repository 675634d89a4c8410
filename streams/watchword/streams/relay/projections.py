"""What is published beside an event, made of the same row: refusals as OCSF.

A row that has a projection is published when both records are acknowledged. The projection goes first:
a topic that is missing, or a record that is rejected, then holds the row back, and does not have it sent
again and again. Both have one key, id and headers: order and deduplication are the same on both topics.
"""

import json
from collections.abc import Sequence
from dataclasses import replace

import structlog

from watchword.handlers.store.relay import Row
from watchword.schemas.ocsf import to_ocsf
from watchword.schemas.topics import JOIN_REFUSED, JOIN_REFUSED_OCSF
from watchword.streams.relay.publisher import Outcome

_log = structlog.get_logger(__name__)

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Projected:
    """Rows with their projections before them, and the outcome of both as the rows' own."""

    def __init__(self, rows: Sequence[Row]) -> None:
        """Put each projection before its row."""
        self.rows: list[Row] = []
        self._positions: list[int] = []
        for position, row in enumerate(rows):
            projection = _ocsf(row) if row.topic == JOIN_REFUSED else None
            records = [row] if projection is None else [projection, row]
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


def _ocsf(row: Row) -> Row | None:
    """Return the OCSF record; None for what is no refusal of this release, which must stop no partition."""
    try:
        value = _encode(to_ocsf(json.loads(row.value))).encode()
    except (KeyError, ValueError, TypeError) as error:
        _log.error("no OCSF for this event", event_id=str(row.event_id), error=type(error).__name__)
        return None
    return replace(row, topic=JOIN_REFUSED_OCSF, value=value)
