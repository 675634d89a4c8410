"""No event without its row, no row without its event, and the events of one key in their order."""

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.faults.judge.findings import Findings
from tests.faults.judge.tables import Row, Tables
from tests.faults.judge.topics import NODE_EVENTS, REFUSED, Record


@dataclass(slots=True)
class Published:
    """What stands in the topics of events."""

    records: int = 0
    again: int = 0
    """Records whose event stood there before: allowed, and counted."""
    by_topic: dict[str, int] = field(default_factory=dict[str, int])


async def check_events(
    tables: Tables,
    records: Sequence[Record],
    owed: set[str],
    parked: set[str],
    findings: Findings,
) -> Published:
    """Compare the journal with `node.events` and `security.join.refused`, record by record.

    `owed` are the ids of events that have to be there; `parked` are the ids of events that an operator took out of the way.
    """
    rows = await tables.rows(
        "SELECT event_id::text AS id, seq, topic, type, key, headers::text AS headers, value "
        "FROM journal WHERE topic IS NOT NULL ORDER BY seq"
    )
    journal = {row["id"]: row for row in rows}
    first: dict[str, Record] = {}
    found = Published()
    for record in records:
        found.records += 1
        found.by_topic[record.topic] = found.by_topic.get(record.topic, 0) + 1
        event_id = (dict(record.headers).get("ce_id") or b"").decode()
        row = journal.get(event_id)
        if row is None:
            findings.wrong("event without its row", f"{record.place} {event_id}")
            continue
        if event_id in first:
            found.again += 1
        else:
            first[event_id] = record
        if (problem := _difference(record, row)) is not None:
            findings.wrong("event is not as its row", f"{event_id}: {problem}")
    for event_id in owed - first.keys():
        findings.lost("row without its event", f"{event_id} {journal[event_id]['type']}")
    for event_id in parked & first.keys():
        findings.wrong("parked event was published", event_id)
    _check_order(first, journal, findings)
    return found


def _difference(record: Record, row: Row) -> str | None:
    body = json.loads(record.value or b"null")
    headers = {name: (value or b"").decode() for name, value in record.headers}
    if record.topic != row["topic"]:
        return "topic"
    if record.key != bytes(row["key"]) or record.value != bytes(row["value"]):
        return "key or value"
    if headers != json.loads(row["headers"]) or len(headers) != len(record.headers):
        return "headers"
    told = (body["id"], body["type"], body["time"], body["tenant"])
    named = ("ce_id", "ce_type", "ce_time", "ce_tenantid")
    if told != tuple(headers[name] for name in named):
        return "body and headers tell different things"
    return None


def _check_order(first: dict[str, Record], journal: dict[str, Row], findings: Findings) -> None:
    """The first deliveries of a key stand in one partition; those of a node in the journal's order.

    Refusals of a bucket have none among each other: no lock is shared by those who write them.
    """
    by_key: dict[tuple[str, bytes], list[Record]] = defaultdict(list)
    for record in first.values():
        by_key[record.topic, record.key or b""].append(record)
    for (topic, key), records in by_key.items():
        if len({record.partition for record in records}) > 1:
            findings.wrong("events of one key in two partitions", f"{topic} {key.hex()}")
            continue
        records.sort(key=lambda record: record.offset)
        seqs = [journal[(dict(r.headers)["ce_id"] or b"").decode()]["seq"] for r in records]
        if topic == NODE_EVENTS and seqs != sorted(seqs):
            findings.wrong("events of one key out of order", f"{topic} {key.hex()}")


async def check_node_histories(tables: Tables, findings: Findings) -> None:
    """The journal tells of each node's certificates in the order in which they were issued."""
    rows = await tables.rows(
        "SELECT c.node_id::text AS node, c.issued_at, c.is_current, j.seq FROM node_certs c JOIN "
        "(SELECT seq, convert_from(value, 'UTF8')::jsonb ->> 'csrSha256' AS csr FROM journal WHERE type IN ('node.joined', 'node.renewed')) j "
        "ON j.csr = encode(c.csr_sha256, 'hex') ORDER BY j.seq"
    )
    histories: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        histories[row["node"]].append(row)
    for node, history in histories.items():
        if [row["is_current"] for row in history] != [False] * (len(history) - 1) + [True]:
            findings.wrong(
                "last node.joined or node.renewed is not of the current certificate", node
            )


__all__ = ["NODE_EVENTS", "REFUSED", "Published", "check_events", "check_node_histories"]
