"""Refusals go out as OCSF, too: of the same row, before it, and both or neither."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from uuid import uuid4, uuid5

from tests.support.security_events import REFUSED
from watchword.handlers.store.relay import Row
from watchword.schemas.topics import JOIN_REFUSED, JOIN_REFUSED_OCSF, NODE_EVENTS
from watchword.streams.relay.projections import _OCSF_IDS, Projected
from watchword.streams.relay.publisher import Outcome


def row(topic: str, seq: int, value: bytes | None = None) -> Row:
    return Row(
        shard=0,
        seq=seq,
        event_id=uuid4(),
        topic=topic,
        key=b"k",
        headers="{}",
        value=json.dumps(REFUSED).encode() if value is None else value,
        recorded_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


JOINED, FIRST, SECOND = row(NODE_EVENTS, 1), row(JOIN_REFUSED, 2), row(JOIN_REFUSED, 3)


def test_a_refusal_is_led_by_its_projection_under_the_same_key() -> None:
    """Consumers of either topic order alike, and find the native event of an OCSF one."""
    projected = Projected([JOINED, FIRST])

    assert [r.topic for r in projected.rows] == [NODE_EVENTS, JOIN_REFUSED_OCSF, JOIN_REFUSED]
    assert len({(r.event_id, r.key) for r in projected.rows[1:]}) == 1
    assert json.loads(projected.rows[1].value)["metadata"]["uid"] == REFUSED["id"]


def test_a_projection_has_an_id_of_its_own_that_is_the_same_at_each_resend() -> None:
    """A consumer of both topics that drops ids it has seen must drop neither event, and every copy."""
    sent = replace(FIRST, headers=json.dumps({"ce_id": str(FIRST.event_id), "ce_type": "t"}))
    made = [json.loads(Projected([sent]).rows[0].headers) for _ in range(2)]

    assert made[0] == made[1]
    assert made[0]["ce_id"] == str(uuid5(_OCSF_IDS, str(FIRST.event_id))) != str(FIRST.event_id)
    assert made[0]["ce_type"] == "t.ocsf"


def test_a_tenant_with_a_topic_has_its_own_refusals_there_and_nobody_elses() -> None:
    """Kafka authorises topics, never keys: this is how a tenant's SIEM reads its own stream."""
    mine = row(JOIN_REFUSED, 1, json.dumps(REFUSED | {"tenant": "acme"}).encode())
    other = row(JOIN_REFUSED, 2, json.dumps(REFUSED | {"tenant": "globex"}).encode())
    projected = Projected([mine, other, FIRST], tenant_topics={"acme"})

    own = [r for r in projected.rows if r.topic == "security.join.refused.tenant.acme"]
    assert [(r.event_id, r.headers, r.value) for r in own] == [
        (mine.event_id, mine.headers, mine.value)
    ]
    assert len(projected.rows) == 7


def test_a_row_counts_as_published_only_with_its_projection() -> None:
    """Otherwise the cursor moves over a record that is nowhere."""
    projected = Projected([JOINED, FIRST, SECOND])

    outcome = projected.folded(Outcome(acknowledged={0, 2, 3, 4}))

    assert outcome.acknowledged == {0, 2}


def test_a_rejected_projection_is_its_rows_rejection() -> None:
    """The relay names the row that blocks its shard."""
    outcome = Projected([FIRST, SECOND]).folded(
        Outcome(acknowledged={0, 1}, rejected={2: "MessageSizeTooLarge"})
    )

    assert outcome.acknowledged == {0}
    assert outcome.rejected == {1: "MessageSizeTooLarge"}


def test_what_has_no_projection_stops_nothing() -> None:
    """An event of a newer release must not hold up all that follow."""
    projected = Projected([row(JOIN_REFUSED, 1, b"not JSON"), FIRST])

    assert [r.topic for r in projected.rows] == [JOIN_REFUSED, JOIN_REFUSED_OCSF, JOIN_REFUSED]
