"""Checks of Kafka: the topics and their configs, and that nothing is forgotten before its request is."""

from collections.abc import Sequence
from datetime import timedelta

from watchword.schemas.topics import (
    JOIN_REQUESTS,
    KEY_SET_KEY,
    TOPICS,
    TRUST_BUNDLE_KEY,
    Topic,
)
from watchword.streams.doctor.findings import Finding, fail, ok, warn
from watchword.streams.kafka_clients import KafkaConnection
from watchword.streams.published_trust import read_published
from watchword.streams.topics.admin import administering
from watchword.streams.topics.plan import Found, Step, Wish, plan


async def check_kafka(
    kafka: KafkaConnection, wish: Wish, *, inbox: timedelta, topics: Sequence[Topic] = TOPICS
) -> list[Finding]:
    """Return findings; raises `Unavailable` when Kafka is away. `inbox` is how long answers are kept."""
    async with administering(kafka) as admin:
        found = await admin.found(topics)
    findings = [_of_topic(topic.name, plan([topic], found, wish)) for topic in topics]
    if requests := found.get(JOIN_REQUESTS):
        findings.append(_retention(requests, inbox))
    published = await read_published(kafka) if len(found) == len(topics) else {}
    missing = [key.decode() for key in (KEY_SET_KEY, TRUST_BUNDLE_KEY) if key not in published]
    if missing:
        text = f"{' and '.join(missing)} not published: `watchword trust publish`"
        findings.append(fail("trust", text))
    else:
        findings.append(ok("trust", "key set and trust bundle are published"))
    return findings


def _of_topic(name: str, steps: list[Step]) -> Finding:
    if not steps:
        return ok(f"topic {name}", "as it has to be")
    said = "; ".join(f"{step.what} {step.now}, wanted {step.wanted}" for step in steps)
    if any(step.changes for step in steps):
        return fail(f"topic {name}", f"{said}: `watchword topics apply`")
    return warn(f"topic {name}", said)


def _retention(requests: Found, inbox: timedelta) -> Finding:
    said = int(requests.configs.get("retention.ms", "-1"))
    if said < 0:
        return fail("retention", f"{JOIN_REQUESTS} is kept for ever, and the inbox is not")
    retention = timedelta(milliseconds=said)
    text = f"{JOIN_REQUESTS} {retention}, inbox {inbox}"
    if inbox <= retention:
        return fail("retention", f"{text}: a request read again could be judged twice")
    return ok("retention", text)
