"""Entries of the journal: the event log that tables are a projection of, and the outbox of the relay.

An entry carries a published event (`value`, `headers`), or one that nobody is told (`topic` None),
and in `private` what a rebuild needs beyond it. Pure: ids, times and trace context are arguments.
"""

from datetime import datetime
from hashlib import sha256
from typing import Any, Literal, NamedTuple
from uuid import UUID

from uuid_utils.compat import uuid7

from watchword.schemas.canonical import canonical
from watchword.schemas.cloudevents import Attributes, headers
from watchword.schemas.events import Event

SHARDS = 32
"""Logical shards; fixed, because a key's shard is stored with its rows."""

EventClass = Literal["domain", "refusal"]


class Entry(NamedTuple):
    """One row of the journal but for what PostgreSQL adds (`seq`, `xid`, `recorded_at`).

    The order of the fields is that of the type `journal_entry`, after the shard.
    """

    event_id: UUID
    event_class: EventClass
    topic: str | None
    type: str
    key: bytes
    headers: str
    """JSON object of record headers."""
    value: bytes
    private: bytes | None
    occurred_at: datetime

    @property
    def shard(self) -> int:
        """The key's shard: entries of one key stay in order."""
        return shard_of(self.key)


def shard_of(key: bytes) -> int:
    """Return the shard of a record key, 0 to 31."""
    return sha256(key).digest()[0] % SHARDS


def new_event_id() -> UUID:
    """Return a UUIDv7 (RFC 9562): the event's id, the same at each resend."""
    return uuid7()


def entry(  # noqa: PLR0913 - an entry has these parts
    event: Event,
    *,
    event_id: UUID,
    occurred_at: datetime,
    key: bytes,
    source: str,
    subject: str,
    topic: str | None,
    event_class: EventClass = "domain",
    private: dict[str, Any] | None = None,
    traceparent: str | None = None,
) -> Entry:
    """Return the entry of an event; `event.id` is `str(event_id)`."""
    attributes = Attributes(
        id=event.id,
        type=event.type,
        source=source,
        time=event.time,
        subject=subject,
        tenant_id=event.tenant,
        traceparent=traceparent,
    )
    return written_entry(
        event.model_dump_json(by_alias=True).encode(),
        attributes,
        event_id=event_id,
        occurred_at=occurred_at,
        key=key,
        topic=topic,
        event_class=event_class,
        private=private,
    )


def written_entry(
    value: bytes,
    attributes: Attributes,
    *,
    event_id: UUID,
    occurred_at: datetime,
    key: bytes,
    topic: str | None,
    event_class: EventClass = "domain",
    private: dict[str, Any] | None = None,
) -> Entry:
    """Return the entry of an event that is written already: `value` is its JSON."""
    return Entry(
        event_id=event_id,
        event_class=event_class,
        topic=topic,
        type=attributes.type,
        key=key,
        headers=canonical(headers(attributes)).decode(),
        value=value,
        private=None if private is None else canonical(private),
        occurred_at=occurred_at,
    )


def refusal_key(tenant: str, attestor: str, reason: str) -> bytes:
    """Return the record key of a bucket: 32 hex digits of SHA-256, so that its details and summaries stay in order."""
    return sha256(f"{tenant}|{attestor}|{reason}".encode()).hexdigest()[:32].encode()
