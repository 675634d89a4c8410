"""CloudEvents 1.0 in binary mode on Kafka: the record's headers.

https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/kafka-protocol-binding.md
"""

from typing import NamedTuple

from watchword.schemas.traceparent import CE_TRACEPARENT, TRACEPARENT

SPEC_VERSION = "1.0"
CONTENT_TYPE = "application/json"


class Attributes(NamedTuple):
    """The context attributes of one event. `time` is when it happened, RFC 3339."""

    id: str
    type: str
    source: str
    time: str
    subject: str
    tenant_id: str
    traceparent: str | None = None
    """The span in which it happened (extension Distributed Tracing); None where nobody traces."""


def headers(attributes: Attributes) -> dict[str, str]:
    """Return the record's headers: names and values are ASCII, none is empty of meaning."""
    found = {
        "ce_specversion": SPEC_VERSION,
        "ce_id": attributes.id,
        "ce_type": attributes.type,
        "ce_source": attributes.source,
        "ce_time": attributes.time,
        "ce_subject": attributes.subject,
        "ce_tenantid": attributes.tenant_id,
        "content-type": CONTENT_TYPE,
    }
    if attributes.traceparent is not None:
        # The attribute, and what tracers of Kafka's clients look for.
        found[CE_TRACEPARENT] = found[TRACEPARENT] = attributes.traceparent
    return found
