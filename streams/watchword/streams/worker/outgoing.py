"""What the worker sends: answers, and dead letters."""

from dataclasses import dataclass, replace
from enum import StrEnum

from watchword.handlers.join.records import Answer, Incoming
from watchword.streams.worker.options import WorkerTopics
from watchword.streams.worker.unreadable import Extent, Headers, Unreadable

REASON = "watchword-reason"
TOPIC = "watchword-topic"
PARTITION = "watchword-partition"
OFFSET = "watchword-offset"
FAULT = "watchword-fault"
CONTENT = "watchword-content"
"""What the dead letter's value is: one of `Extent`. If it is `nothing`, the value is empty."""
ORIGINAL = "original."
"""In front of the names of the original record's headers, so that none can pass for one of ours."""

POISON = "poison"
"""The reason of a record that Kafka's client cannot parse."""


class Kind(StrEnum):
    """A label of metrics."""

    ANSWER = "answer"
    DEAD_LETTER = "dead-letter"


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One record to be sent. Key and value are never both None, which Kafka's client refuses."""

    kind: Kind
    topic: str
    key: bytes | None
    value: bytes
    headers: Headers = ()

    def without_content(self) -> "Outgoing | None":
        """Return what to send instead if Kafka refuses it for its size, or None.

        An answer without its content says nothing. A dead letter still says where the record is,
        as long as the topic of requests keeps it.
        """
        if self.kind is Kind.ANSWER or not (self.value or self.key):
            return None
        kept = tuple((n, v) for n, v in self.headers if n != CONTENT and not n.startswith(ORIGINAL))
        headers = (*kept, (CONTENT, Extent.NOTHING.value.encode()))
        return replace(self, key=None, value=b"", headers=headers)


def answer_of(answer: Answer, topics: WorkerTopics) -> Outgoing:
    """Return the record that carries an answer."""
    return Outgoing(Kind.ANSWER, topics.responses, answer.key, answer.value)


def dead_letter_of(
    incoming: Incoming, reason: str, topics: WorkerTopics, unreadable: Unreadable | None = None
) -> Outgoing:
    """Return the record that keeps what could not be read, its bytes unchanged.

    Its headers say why, and where it came from. Those of the original follow under `original.`,
    but for names that are not UTF-8: those cannot be sent.
    """
    extent = unreadable.extent if unreadable is not None else Extent.VALUE
    content = bytes(unreadable) if unreadable is not None else incoming.value
    if content is None:
        extent, content = Extent.NOTHING, b""
    headers = [
        (REASON, reason.encode()),
        (TOPIC, incoming.topic.encode()),
        (PARTITION, str(incoming.partition).encode()),
        (OFFSET, str(incoming.offset).encode()),
        (CONTENT, extent.value.encode()),
    ]
    if unreadable is not None:
        headers.append((FAULT, unreadable.fault.value.encode()))
    originals = tuple((ORIGINAL + name, value) for name, value in incoming.headers)
    return Outgoing(
        Kind.DEAD_LETTER, topics.dead_letters, incoming.key, content, (*headers, *originals)
    )
